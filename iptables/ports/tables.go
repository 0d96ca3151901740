package ports

// Tables are the tables in the network namespace of the calling thread.
type Tables struct{}
