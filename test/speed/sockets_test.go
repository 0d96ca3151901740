package speed

import (
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

// serverPort is the port of the servers, each in a network namespace of its own.
const serverPort = 8080

// The amounts that are sent over a bridge before it is the turn of another.
const (
	connections = 50
	flows       = 50
	exchanges   = 100     // on one connection
	bulk        = 4 << 20 // bytes, on one connection
)

// measurement is a function that uses a server from a client's network namespace.
type measurement struct {
	names   []string // of the values that it returns, with their units
	measure func(*sockets) ([]float64, error)
}

// measurements returns all. Rates are those of the thread's processor time, of which a loaded machine takes nothing.
func measurements() []measurement {
	return []measurement{
		{[]string{"connections/s", "connect-us"}, (*sockets).connect},
		{[]string{"udp-us"}, (*sockets).openFlows},
		{[]string{"unreplied-us"}, (*sockets).openUnreplied},
		{[]string{"established-us", "throughput-MB/s"}, (*sockets).converse},
	}
}

// sockets holds a server's sockets. One thread uses both ends: the kernel delivers a packet in the call that sends it.
type sockets struct {
	tcp, udp int
	to       unix.Sockaddr
}

// listen opens the sockets, at an address of the calling thread's network namespace.
func (s *sockets) listen(addr [4]byte) (err error) {
	s.to = &unix.SockaddrInet4{Addr: addr, Port: serverPort}
	if s.tcp, err = socket(unix.SOCK_STREAM); err != nil {
		return err
	}
	if s.udp, err = socket(unix.SOCK_DGRAM); err != nil {
		return err
	}
	for _, fd := range []int{s.tcp, s.udp} {
		if err := unix.Bind(fd, s.to); err != nil {
			return errors.Wrap(err, "binding a server")
		}
	}
	return errors.Wrap(unix.Listen(s.tcp, connections), "listening")
}

func (s *sockets) close() {
	_ = unix.Close(s.tcp)
	_ = unix.Close(s.udp)
}

// socket opens a socket. Its calls have no time limit: with one, signals of Go's scheduler end them.
func socket(kind int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, errors.Wrap(err, "opening a socket")
	}
	return fd, nil
}

// pair opens a connection. Closing its client resets it, so that its port can be used again.
func (s *sockets) pair() (client, server int, took float64, err error) {
	if client, err = socket(unix.SOCK_STREAM); err != nil {
		return 0, 0, 0, err
	}
	if err := unix.SetsockoptLinger(client, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return 0, 0, 0, errors.Wrap(err, "setting up a reset")
	}
	start := time.Now()
	err = unix.Connect(client, s.to)
	took = since(start)
	if err != nil {
		return 0, 0, 0, errors.Wrap(err, "connecting")
	}
	server, _, err = unix.Accept4(s.tcp, unix.SOCK_CLOEXEC)
	return client, server, took, errors.Wrap(err, "accepting")
}

// connect opens connections and resets them. It returns their rate, and the median time of a client's connect.
func (s *sockets) connect() ([]float64, error) {
	var took []float64
	start, err := threadTime()
	if err != nil {
		return nil, err
	}
	for range connections {
		client, server, t, err := s.pair()
		if err != nil {
			return nil, err
		}
		took = append(took, t)
		_ = unix.Close(client)
		_ = unix.Close(server)
	}
	end, err := threadTime()
	return []float64{connections / (end - start).Seconds(), median(took)}, err
}

// senders opens UDP sockets with ports of their own, has send use each, and returns the median time of that.
func (s *sockets) senders(send func(fd int) error) ([]float64, error) {
	var took []float64
	for range flows {
		fd, err := socket(unix.SOCK_DGRAM)
		if err != nil {
			return nil, err
		}
		if err := unix.Bind(fd, &unix.SockaddrInet4{}); err != nil {
			return nil, errors.Wrap(err, "binding a client")
		}
		start := time.Now()
		err = send(fd)
		took = append(took, since(start))
		_ = unix.Close(fd)
		if err != nil {
			return nil, err
		}
	}
	return []float64{median(took)}, nil
}

// openFlows sends a packet that opens a flow, and its answer.
func (s *sockets) openFlows() ([]float64, error) {
	buffer := make([]byte, 64)
	return s.senders(func(fd int) error {
		if err := unix.Sendto(fd, buffer[:1], 0, s.to); err != nil {
			return errors.Wrap(err, "sending a datagram")
		}
		_, from, err := unix.Recvfrom(s.udp, buffer, 0)
		if err != nil {
			return errors.Wrap(err, "receiving a datagram")
		}
		if err := unix.Sendto(s.udp, buffer[:1], 0, from); err != nil {
			return errors.Wrap(err, "answering")
		}
		_, _, err = unix.Recvfrom(fd, buffer, 0)
		return errors.Wrap(err, "receiving an answer")
	})
}

// openUnreplied sends a packet that opens a flow, alone.
func (s *sockets) openUnreplied() ([]float64, error) {
	buffer := make([]byte, 64)
	took, err := s.senders(func(fd int) error { return unix.Sendto(fd, buffer[:1], 0, s.to) })
	for i := 0; i < flows && err == nil; i++ {
		_, _, err = unix.Recvfrom(s.udp, buffer, 0)
	}
	return took, errors.Wrap(err, "sending datagrams that are not answered")
}

// converse uses one connection. It returns the median time of a byte and one back, and the throughput.
func (s *sockets) converse() ([]float64, error) {
	client, server, _, err := s.pair()
	if err != nil {
		return nil, err
	}
	defer unix.Close(server)
	defer unix.Close(client)
	for _, fd := range []int{client, server} {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
			return nil, errors.Wrap(err, "sending without delay")
		}
	}
	var took []float64
	one := make([]byte, 1)
	for range exchanges {
		start := time.Now()
		for _, way := range [...][2]int{{client, server}, {server, client}} {
			if _, err := unix.Write(way[0], one); err != nil {
				return nil, errors.Wrap(err, "writing a byte")
			}
			if _, err := unix.Read(way[1], one); err != nil {
				return nil, errors.Wrap(err, "reading a byte")
			}
		}
		took = append(took, since(start))
	}
	rate, err := transfer(client, server)
	return []float64{median(took), rate}, err
}

// transfer sends many bytes and returns how many a second, in MB.
func transfer(client, server int) (float64, error) {
	start, err := threadTime()
	if err != nil {
		return 0, err
	}
	buffer := make([]byte, 1<<16)
	for received := 0; received < bulk; {
		sent, err := unix.SendmsgN(client, buffer, nil, nil, unix.MSG_DONTWAIT)
		for sent > 0 && err == nil {
			var n int
			n, err = unix.Read(server, buffer)
			sent, received = sent-n, received+n
		}
		if err != nil {
			return 0, errors.Wrap(err, "sending many bytes")
		}
	}
	end, err := threadTime()
	return bulk / 1e6 / (end - start).Seconds(), err
}

// since returns the time since then in µs.
func since(start time.Time) float64 { return float64(time.Since(start).Nanoseconds()) / 1e3 }

// threadTime returns how long the thread has had a processor.
func threadTime() (time.Duration, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano()), errors.Wrap(err, "reading the thread's clock")
}
