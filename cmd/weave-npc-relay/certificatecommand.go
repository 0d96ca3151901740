package main

import (
	"os"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/certificate"
)

// certificateCommand returns the command that makes a certificate.
func certificateCommand() *cobra.Command {
	var config certificate.Config
	var days int
	var trusted string
	c := &cobra.Command{
		Use:   "certificate",
		Short: "Prints a new certificate, as the Secret of relays and the ConfigMap of agents",
		Long: "Prints a new certificate, as the Secret of relays and the ConfigMap of agents, " +
			"both named after the Service. " +
			"The authority that signs it is new too, and its key is forgotten.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if days < 1 || days > 3650 {
				return errors.Errorf("--days %d: want 1 to 3650", days)
			}
			config.For = time.Duration(days) * 24 * time.Hour
			if trusted != "" {
				var err error
				if config.Trusted, err = os.ReadFile(trusted); err != nil {
					return errors.Wrap(err, "reading what agents go on to trust; --trusted names it")
				}
			}
			text, err := certificate.Objects(config)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return errors.Wrap(err, "printing the objects")
		},
	}
	c.Flags().StringVar(&config.Namespace, "namespace", "kube-system", "namespace of the relays")
	c.Flags().StringVar(&config.Service, "service", "weave-npc-relay", "Service of the relays")
	c.Flags().IntVar(&days, "days", 365, "how long the certificate is valid")
	c.Flags().StringVar(&trusted, "trusted", "",
		"file of certificates (PEM) that agents continue to trust: those of the existing ConfigMap")
	return c
}
