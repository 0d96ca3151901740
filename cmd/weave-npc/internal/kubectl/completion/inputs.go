package completion

import (
	"context"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/npc/source/apiclient"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
)

// The flags that say where objects are.
const (
	manifestsFlag  = "manifests"
	kubeconfigFlag = "kubeconfig"
	contextFlag    = "context"
)

// inputs is where objects are.
type inputs struct {
	manifests string
	access    apiclient.Access
}

// inputsOf returns the inputs that the flags of a command name.
func inputsOf(cmd *cobra.Command) inputs {
	value := func(name string) string {
		if f := cmd.Flag(name); f != nil {
			return f.Value.String()
		}
		return ""
	}
	return inputs{manifests: value(manifestsFlag), access: apiclient.Access{Kubeconfig: value(kubeconfigFlag),
		Context: value(contextFlag), Cluster: value("cluster"), User: value("user"), As: value("as")}}
}

// namespaces returns the names of namespaces, also of those that only an object of manifests names.
func (w inputs) namespaces(ctx context.Context) (names []string) {
	if w.manifests != "" {
		found := map[string]bool{}
		o := w.objects()
		for _, n := range o.Namespaces {
			found[n.Name] = true
		}
		for _, p := range o.Pods {
			found[p.Namespace] = true
		}
		for _, p := range o.Policies {
			found[p.Namespace] = true
		}
		return slices.Sorted(maps.Keys(found))
	}
	client := w.client()
	if client == nil {
		return nil
	}
	list, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{Limit: most})
	if err != nil {
		return nil
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// pods returns the names of the pods of a namespace. Those of manifests stand for workloads too.
func (w inputs) pods(ctx context.Context, namespace string) (names []string) {
	if w.manifests != "" {
		for _, p := range w.objects().Pods {
			if p.Namespace == namespace {
				names = append(names, p.Name)
			}
		}
		return names
	}
	client := w.client()
	if client == nil || namespace == "" {
		return nil
	}
	list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{Limit: most})
	if err != nil {
		return nil
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// objects returns those of manifests, without files that have mistakes. Standard input is for the command itself.
func (w inputs) objects() snapshot.Objects {
	if w.manifests == snapshot.StandardInput {
		return snapshot.Objects{}
	}
	m, err := snapshot.Open(w.manifests, nil)
	if err != nil {
		return snapshot.Objects{}
	}
	o, _ := m.WithWorkloads() // the command reports errors when it runs
	return o
}

// client returns one for the API server; nil if none is known.
func (w inputs) client() kubernetes.Interface {
	client, _, err := apiclient.ForUser(w.access, cli.Version())
	if err != nil {
		return nil
	}
	return client
}
