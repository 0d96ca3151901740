package main

import (
	"os"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
)

// certificateCommand returns the command that makes a certificate.
func certificateCommand() *cobra.Command {
	var config certificate
	var days int
	var trusted string
	c := &cobra.Command{
		Use:   "certificate",
		Short: "Print a new certificate, as the Secret of relays and the ConfigMap of agents",
		Long: "Print a new certificate, as the Secret of relays and the ConfigMap of agents, " +
			"both named after the Service. " +
			"The authority that signs it is new too, and its key is forgotten.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if days < 1 || days > 3650 {
				return errors.Errorf("--days %d: want 1 to 3650", days)
			}
			config.valid = time.Duration(days) * 24 * time.Hour
			if trusted != "" {
				var err error
				if config.trusted, err = os.ReadFile(trusted); err != nil {
					return errors.Wrap(err, "reading what agents go on to trust; --trusted names it")
				}
			}
			text, err := config.objects()
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return errors.Wrap(err, "printing the objects")
		},
	}
	c.Flags().StringVar(&config.namespace, "namespace", "kube-system", "namespace of the relays")
	c.Flags().StringVar(&config.service, "service", "weave-npc-relay", "Service of the relays")
	c.Flags().IntVar(&days, "days", 365, "how long the certificate is valid")
	c.Flags().StringVar(&trusted, "trusted", "",
		"file of certificates (PEM) that agents continue to trust: those of the existing ConfigMap")
	return c
}
