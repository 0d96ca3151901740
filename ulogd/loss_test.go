package ulogd

import "testing"

const (
	lossLogs = "   86   2737     0 2 65535    100  1\n" +
		"   87 3014656000     0 2 65535    100  1\n" +
		"   88   9999     0 2 65535    100  1\n"
	lossNet = "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n" +
		"0000000000000000 12  2737       00000000 0        0        0     2        7        1\n" +
		"0000000000000000 12  3014656000 00000000 0        0        0     2        30       2\n" +
		"0000000000000000 12  9999       00000000 0        0        0     2        400      3\n" +
		"0000000000000000 0   2737       00000000 0        0        0     2        5000     4\n"
)

func TestCountDrops(t *testing.T) {
	cases := []struct {
		name          string
		sockets, logs string
		want          uint64
	}{
		{"our groups", lossNet, lossLogs, 37},
		{"group not bound", lossNet, "   86   2737     0 2 65535    100  1\n", 7},
		{"nothing", "", "", 0},
		{"columns missing", "0000000000000000 12  2737\n", lossLogs, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := countDrops(c.sockets, groupPorts(c.logs, testGroups())); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}
