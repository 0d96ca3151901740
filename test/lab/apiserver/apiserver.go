// Package apiserver runs a real kube-apiserver and its etcd on a host of a lab network.
package apiserver

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/pkg/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/weave-npc/weave-npc/test/lab"
)

// Config names the host, the programs and the directory that Start uses.
type Config struct {
	// Host is where both processes run, on free ports. Clients reach the API server at the host's first address.
	Host *lab.Host
	// Binaries is the directory with kube-apiserver and etcd (test/controlplane/build makes one).
	Binaries string
	// Dir is where a directory for data, logs, keys and the kubeconfig is made; Stop removes it.
	Dir string
}

// Server is a running API server with its etcd.
type Server struct {
	config Config
	dir    string
	token  string
	addr   netip.AddrPort // of the API server
	store  netip.AddrPort // of etcd, on the loopback
	etcd   *process
	api    *process
}

// tokensFile is the file of the users' tokens in a server's directory.
const tokensFile = "tokens"

// startTimeout is how long either process may take to be ready; a start on a busy machine takes minutes.
const startTimeout = 5 * time.Minute

// Start starts both and returns when the API server is ready. There is no controller manager: what its controllers do
// (service accounts, endpoints, emptying a deleted namespace) does not happen, and a pod needs no service account.
func Start(ctx context.Context, config Config) (*Server, error) {
	s := &Server{config: config, token: uuid.NewString()}
	err := s.start(ctx)
	if err != nil {
		_ = s.Stop()
		return nil, errors.Wrapf(err, "starting an API server on host %s", config.Host)
	}
	return s, nil
}

func (s *Server) start(ctx context.Context) error {
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if _, err := os.Stat(filepath.Join(s.config.Binaries, name)); err != nil {
			return errors.Wrap(err, "looking for the control plane's binaries (test/controlplane/build makes them)")
		}
	}
	addrs := s.config.Host.Addrs()
	if len(addrs) == 0 {
		return errors.New("the host has no address")
	}
	var err error
	if s.dir, err = os.MkdirTemp(s.config.Dir, "apiserver-"); err != nil {
		return errors.Wrap(err, "making a directory")
	}
	if s.addr, err = s.freePort(addrs[0]); err != nil {
		return err
	}
	authority, err := NewAuthority(s.dir)
	if err != nil {
		return err
	}
	if err := authority.WriteServer(addrs); err != nil {
		return err
	}
	tokens := fmt.Sprintf("%s,admin,admin,system:masters\n", s.token)
	if err := os.WriteFile(s.file(tokensFile), []byte(tokens), 0o600); err != nil {
		return errors.Wrap(err, "writing tokens")
	}
	if err := s.writeKubeconfig(); err != nil {
		return err
	}
	if err := s.startEtcd(ctx); err != nil {
		return err
	}
	return s.StartAPI(ctx)
}

func (s *Server) file(name string) string { return filepath.Join(s.dir, name) }

// freePort finds a port without a listener. No other process can take it, because the host belongs to this network.
func (s *Server) freePort(addr netip.Addr) (netip.AddrPort, error) {
	var port netip.AddrPort
	err := s.config.Host.Do(func() error {
		listener, err := net.Listen("tcp", netip.AddrPortFrom(addr, 0).String())
		if err != nil {
			return err
		}
		port = listener.Addr().(*net.TCPAddr).AddrPort()
		return listener.Close()
	})
	return netip.AddrPortFrom(addr, port.Port()), errors.Wrapf(err, "finding a free port on %s", addr)
}

func (s *Server) startEtcd(ctx context.Context) error {
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	var err error
	if s.store, err = s.freePort(loopback); err != nil {
		return err
	}
	peer, err := s.freePort(loopback)
	if err != nil {
		return err
	}
	client, peers := "http://"+s.store.String(), "http://"+peer.String()
	s.etcd, err = startProcess(s.config.Host, filepath.Join(s.config.Binaries, "etcd"), s.dir,
		"--name=lab", "--data-dir="+s.file("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=lab="+peers)
	if err != nil {
		return err
	}
	transport := &http.Transport{DialContext: s.config.Host.DialContext}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return s.etcd.await(ctx, func() error {
		return get(ctx, &http.Client{Transport: transport}, client+"/health")
	})
}

// StartAPI starts the API server again after StopAPI, at the same address and with the same data.
func (s *Server) StartAPI(ctx context.Context) error {
	services := "10.96.0.0/16,fd10:96::/112"
	if s.addr.Addr().Is6() {
		services = "fd10:96::/112,10.96.0.0/16"
	}
	var err error
	s.api, err = startProcess(s.config.Host, filepath.Join(s.config.Binaries, "kube-apiserver"), s.dir,
		"--etcd-servers=http://"+s.store.String(),
		"--bind-address="+s.addr.Addr().String(), "--advertise-address="+s.addr.Addr().String(),
		"--secure-port="+strconv.Itoa(int(s.addr.Port())), "--service-cluster-ip-range="+services,
		"--tls-cert-file="+s.file(ServerCertFile), "--tls-private-key-file="+s.file(ServerKeyFile),
		"--service-account-issuer=https://lab", "--service-account-key-file="+s.file(ServerKeyFile),
		"--service-account-signing-key-file="+s.file(ServerKeyFile),
		"--token-auth-file="+s.file(tokensFile), "--authorization-mode=RBAC", "--allow-privileged",
		"--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none", "--v=1")
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(s.Client())
	if err != nil {
		return errors.Wrap(err, "making a client")
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return s.api.await(ctx, func() error { return get(ctx, client, s.URL()+"/readyz") })
}

// get returns an error unless the answer is 200.
func get(ctx context.Context, client *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return errors.Wrapf(err, "asking for %s", url)
	}
	answer, err := client.Do(request)
	if err != nil {
		return errors.Wrapf(err, "asking for %s", url)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.Errorf("%s answers %s", url, answer.Status)
	}
	return nil
}

// StartAlongside starts another API server with the same etcd, keys and users, as a cluster with several control-plane
// nodes has. It is to be stopped before the first.
func (s *Server) StartAlongside(ctx context.Context) (*Server, error) {
	other := &Server{config: s.config, token: s.token, store: s.store}
	err := other.startAlongside(ctx, s)
	if err != nil {
		_ = other.Stop()
		return nil, errors.Wrapf(err, "starting another API server on host %s", s.config.Host)
	}
	return other, nil
}

func (s *Server) startAlongside(ctx context.Context, first *Server) error {
	var err error
	if s.dir, err = os.MkdirTemp(s.config.Dir, "apiserver-"); err != nil {
		return errors.Wrap(err, "making a directory")
	}
	for _, name := range []string{AuthorityFile, ServerCertFile, ServerKeyFile, tokensFile} {
		content, err := os.ReadFile(first.file(name))
		if err != nil {
			return errors.Wrap(err, "reading what the first one has")
		}
		if err := os.WriteFile(s.file(name), content, 0o600); err != nil {
			return errors.Wrap(err, "copying what the first one has")
		}
	}
	if s.addr, err = s.freePort(first.addr.Addr()); err != nil {
		return err
	}
	if err := s.writeKubeconfig(); err != nil {
		return err
	}
	return s.StartAPI(ctx)
}

// StopAPI stops the API server and leaves etcd running.
func (s *Server) StopAPI() error {
	err := s.api.stop()
	s.api = nil
	return err
}

// Stop ends both processes and removes their files.
func (s *Server) Stop() error {
	err := s.StopAPI()
	if stopped := s.etcd.stop(); err == nil {
		err = stopped
	}
	s.etcd = nil
	if s.dir == "" {
		return err
	}
	if removed := os.RemoveAll(s.dir); err == nil {
		err = errors.Wrapf(removed, "removing %s", s.dir)
	}
	return err
}

// URL returns the API server's address for every host of the network.
func (s *Server) URL() string { return "https://" + s.addr.String() }

// Kubeconfig returns the path of a file with which a command on any host of the network is admin.
func (s *Server) Kubeconfig() string { return s.file("kubeconfig") }

// Logs returns the end of what the API server printed.
func (s *Server) Logs() string {
	if s.api == nil {
		return ""
	}
	return s.api.lastWords()
}

// Client returns the configuration of an admin's client in this process, which dials from the API server's host.
func (s *Server) Client() *rest.Config {
	return &rest.Config{
		Host:            s.URL(),
		BearerToken:     s.token,
		TLSClientConfig: rest.TLSClientConfig{CAFile: s.file(AuthorityFile)},
		Dial:            s.config.Host.DialContext,
		QPS:             -1, // no limit
	}
}

func (s *Server) writeKubeconfig() error {
	const name = "lab"
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters[name] = &clientcmdapi.Cluster{Server: s.URL(), CertificateAuthority: s.file(AuthorityFile)}
	kubeconfig.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: s.token}
	kubeconfig.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	kubeconfig.CurrentContext = name
	return errors.Wrap(clientcmd.WriteToFile(*kubeconfig, s.Kubeconfig()), "writing a kubeconfig")
}
