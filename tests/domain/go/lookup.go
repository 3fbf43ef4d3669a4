package main

import (
	"context"
	"fmt"
	"net"
)

// lookup prints the addresses of names as Go's own resolver finds them.
func lookup(names []string) {
	r := net.Resolver{PreferGo: true}
	for _, name := range names {
		found, err := r.LookupIP(context.Background(), "ip4", name)
		if err != nil {
			fmt.Println("not found:", err.(*net.DNSError).IsNotFound)
			continue
		}
		fmt.Println(len(found), found[0])
	}
}
