// A net/http server and 16 clients with connections that are kept; prints requests a second. Argument: milliseconds.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"
)

func main() {
	ms, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello\n") }))
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	var count atomic.Int64
	for i := 0; i < 16; i++ {
		go func() {
			for {
				r, err := client.Get("http://" + l.Addr().String() + "/")
				if err != nil {
					panic(err)
				}
				if b, err := io.ReadAll(r.Body); err != nil || string(b) != "hello\n" {
					panic("wrong answer")
				}
				r.Body.Close()
				count.Add(1)
			}
		}()
	}
	time.Sleep(time.Duration(ms/2) * time.Millisecond)
	from, start := count.Load(), time.Now()
	time.Sleep(time.Duration(ms) * time.Millisecond)
	fmt.Println(float64(count.Load()-from) / time.Since(start).Seconds())
}
