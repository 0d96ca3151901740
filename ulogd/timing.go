package ulogd

import "time"

// timing holds the periods of the supervision. Tests use shorter ones.
type timing struct {
	lookAgain  time.Duration // between two searches for an absent ulogd2
	firstDelay time.Duration // before the first restart; doubles with each further one
	maxDelay   time.Duration // the longest wait before a restart
	healthy    time.Duration // a process that lived this long resets the delay
	cameUp     time.Duration // the longest wait before a restart of a process that had come up
	startup    time.Duration // the longest time until every group's capture has begun
	lossPeriod time.Duration // between two readings of the kernel's loss counters
}

// defaultTiming returns the timing of Run.
func defaultTiming() timing {
	return timing{
		lookAgain:  15 * time.Second,
		firstDelay: 100 * time.Millisecond,
		maxDelay:   30 * time.Second,
		healthy:    10 * time.Second,
		cameUp:     time.Second,
		startup:    10 * time.Second,
		lossPeriod: time.Second,
	}
}
