package await

import (
	"os"
	"strconv"
	"time"
)

// SlowVariable is the environment variable with the factor of all timeouts of tests, for slow machines.
const SlowVariable = "WEAVE_NPC_TEST_SLOW"

var factor = readFactor()

func readFactor() time.Duration {
	text := os.Getenv(SlowVariable)
	if text == "" {
		return 1
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		panic(SlowVariable + "=" + text + " is no factor of timeouts")
	}
	return time.Duration(n)
}

// Scaled returns a timeout as this machine needs it, from that of a usual one.
func Scaled(timeout time.Duration) time.Duration { return factor * timeout }
