package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// tree returns a daemon with a flag of its own and a subcommand.
func tree() *cobra.Command {
	daemon := &cobra.Command{Use: "weave-npc", Run: func(*cobra.Command, []string) {}}
	daemon.Flags().String("metrics-addr", "", "")
	explain := &cobra.Command{Use: "explain", Run: func(*cobra.Command, []string) {}}
	explain.Flags().String("port", "", "")
	daemon.AddCommand(explain)
	return daemon
}

// TestVariablesOfServicesAreAccepted tests the variables that Kubernetes gives to the containers of a namespace with
// Services of such names.
func TestVariablesOfServicesAreAccepted(t *testing.T) {
	for _, service := range []string{"WEAVE_NPC", "WEAVE_NPC_METRICS"} {
		for _, at := range []string{"10.96.0.7", "fd10:96::7"} {
			host := at
			if strings.Contains(at, ":") {
				host = "[" + at + "]"
			}
			for _, v := range []string{"SERVICE_HOST=" + at, "SERVICE_PORT=6781", "SERVICE_PORT_METRICS=6781", "PORT=tcp://" + host + ":6781",
				"PORT_6781_TCP=tcp://" + host + ":6781", "PORT_6781_TCP_PROTO=tcp", "PORT_6781_TCP_PORT=6781", "PORT_6781_TCP_ADDR=" + at,
				"PORT_53_UDP=udp://" + host + ":53", "PORT_53_UDP_PROTO=udp"} {
				if err := checkEnvironment(tree(), tree(), []string{service + "_" + v}); err != nil {
					t.Errorf("%s_%s is refused: %v", service, v, err)
				}
			}
		}
	}
	for _, v := range []string{"WEAVE_NPC_SERVICE_HOST=node", "WEAVE_NPC_PORT=6781", "WEAVE_NPC_METRICS_PORT=9100", "WEAVE_NPC_PORT_TCP=80",
		"WEAVE_NPC_PORT_6781_TCP_HOST=10.96.0.7", "WEAVE_NPC_SERVICE=a", "WEAVE_NPC_PORT_6781_ICMP=icmp://10.96.0.7:1"} {
		if checkEnvironment(tree(), tree(), []string{v}) == nil {
			t.Errorf("%s is taken for a Service's", v)
		}
	}
}
