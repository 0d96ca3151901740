// Command lookup is lookup.c with Go's resolver.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"
)

func main() {
	port := os.Args[1]
	ms, err := strconv.Atoi(os.Args[2])
	if err != nil {
		os.Exit(2)
	}
	dialer := net.Dialer{Timeout: time.Duration(ms) * time.Millisecond}
	for _, name := range os.Args[3:] {
		addrs, err := net.DefaultResolver.LookupHost(context.Background(), name)
		if err != nil {
			fmt.Printf("%s: %v\n", name, err)
		}
		for _, a := range addrs {
			c, err := dialer.Dial("tcp", net.JoinHostPort(a, port))
			if err != nil {
				fmt.Printf("%s %s: %v\n", name, a, err)
				continue
			}
			fmt.Println(name, a)
			_ = c.Close()
		}
	}
}
