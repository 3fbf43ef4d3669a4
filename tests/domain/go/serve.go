package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"time"
)

// serve is a net/http server under load by clients that keep their connections, with garbage, timers and a spinning
// goroutine beside; says "ready", and "ok" when all goes on after a line of input.
func serve() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(err == nil, "listen")
	var served atomic.Int64
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		must(err == nil, "request")
		served.Add(1)
		fmt.Fprintf(w, "%s %d", r.URL.Path, len(b))
	}))
	counts := make([]atomic.Int64, 10)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	for i := 0; i < 6; i++ {
		go func(i int) {
			for {
				r, err := client.Post(fmt.Sprintf("http://%s/%d", l.Addr(), i), "text/plain", strings.NewReader(strings.Repeat("x", 3000)))
				must(err == nil, "ask")
				b, err := io.ReadAll(r.Body)
				must(err == nil && string(b) == fmt.Sprintf("/%d 3000", i), "answer")
				r.Body.Close()
				counts[i].Add(1)
			}
		}(i)
	}
	go func() {
		keep := map[int][]byte{}
		for n := 0; ; n++ {
			b := make([]byte, 1000+n%5000)
			b[0], b[len(b)-1] = byte(n), byte(n)
			if old := keep[n%100]; old != nil {
				must(old[0] == byte(n-100) && old[len(old)-1] == byte(n-100), "garbage collection")
			}
			keep[n%100] = b
			if n%1000 == 0 {
				runtime.GC()
				counts[6].Add(1)
				time.Sleep(5 * time.Millisecond)
			}
		}
	}()
	go func() {
		for range time.Tick(2 * time.Millisecond) {
			counts[7].Add(1)
		}
	}()
	ping, pong := make(chan int), make(chan int)
	go func() {
		for v := range ping {
			pong <- v + 1
		}
	}()
	go func() {
		for n := 0; ; n++ {
			ping <- n
			must(<-pong == n+1, "channel")
			counts[8].Add(1)
			if n%1000 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
	}()
	go func() { // never calls anything
		for {
			counts[9].Add(1)
		}
	}()
	more := func(n int64) {
		end := time.Now().Add(60 * time.Second)
		from := make([]int64, len(counts))
		for i := range counts {
			from[i] = counts[i].Load()
		}
		for i := range counts {
			for ; counts[i].Load() < from[i]+n; time.Sleep(time.Millisecond) {
				must(time.Now().Before(end), fmt.Sprint("going on: ", i))
			}
		}
	}
	more(5)
	fmt.Println("ready")
	bufio.NewReader(os.Stdin).ReadString('\n')
	more(10)
	must(served.Load() >= counts[0].Load(), "served")
	fmt.Println("ok")
}
