package main

import (
	"fmt"
	"net"
)

// interfaces says what this machine is connected to, a line an interface.
func interfaces() {
	all, err := net.Interfaces()
	must(err == nil, "interfaces")
	for _, i := range all {
		addresses, err := i.Addrs()
		must(err == nil, "addresses")
		fmt.Println(i.Index, i.Name, i.MTU, i.HardwareAddr, i.Flags, addresses)
	}
}
