// A static Go program (with the argument `serve`, the one of serve.go): 1,000 goroutines, garbage collection under pressure, timers, loopback
// sockets, signals and child processes.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func must(ok bool, what string) {
	if !ok {
		fmt.Println("failed:", what)
		os.Exit(1)
	}
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		serve()
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "lookup" {
		lookup(os.Args[2:])
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "interfaces" {
		interfaces()
		return
	}
	if len(os.Args) > 1 { // the child
		fmt.Print("child ", os.Args[1])
		os.Exit(5)
	}
	// 1,000 goroutines pass a token around a ring of channels.
	first := make(chan int)
	in := first
	for i := 0; i < 1000; i++ {
		out := make(chan int)
		go func(in, out chan int) {
			for v := range in {
				out <- v + 1
			}
		}(in, out)
		in = out
	}
	for k := 0; k < 20; k++ {
		go func() { first <- 0 }()
		must(<-in == 1000, "ring")
	}
	// Garbage collection while many goroutines allocate.
	var total atomic.Int64
	var wg sync.WaitGroup
	for i := 0; i < 100; i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			var keep [][]byte
			for j := 0; j < 200; j++ {
				b := make([]byte, 4096+j*16)
				b[0] = byte(j)
				keep = append(keep, b)
				total.Add(int64(len(b)))
				if j%50 == 0 {
					runtime.Gosched()
				}
			}
			_ = keep
		}()
	}
	wg.Wait()
	for i := 0; i < 5; i++ {
		runtime.GC()
	}
	must(total.Load() == 100*(200*4096+16*199*100), "allocation")
	// Timers and a spinning goroutine that must be preempted.
	done := make(chan bool)
	go func() {
		for x := 0; ; x++ {
			select {
			case <-done:
				return
			default:
			}
		}
	}()
	start := time.Now()
	time.Sleep(50 * time.Millisecond)
	must(time.Since(start) >= 50*time.Millisecond, "sleep")
	close(done)
	// Loopback server with many clients.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(err == nil, "listen")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(c, c); c.Close() }()
		}
	}()
	for i := 0; i < 50; i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			c, err := net.Dial("tcp", l.Addr().String())
			must(err == nil, "dial")
			for k := 0; k < 10; k++ {
				fmt.Fprintf(c, "hello")
				b := make([]byte, 5)
				_, err = io.ReadFull(c, b)
				must(err == nil && string(b) == "hello", "echo")
			}
			c.Close()
		}()
	}
	wg.Wait()
	// Signals.
	sig := make(chan os.Signal, 1)
	signal.Notify(sig, syscall.SIGUSR1)
	syscall.Kill(os.Getpid(), syscall.SIGUSR1)
	must(<-sig == syscall.SIGUSR1, "signal")
	// A nil dereference becomes a panic that is recovered.
	func() {
		defer func() { must(recover() != nil, "recover") }()
		var p *int
		*p = 1
	}()
	// Children.
	for i := 0; i < 20; i++ {
		out, err := exec.Command(os.Args[0], fmt.Sprint(i)).Output()
		e, isExit := err.(*exec.ExitError)
		must(isExit && e.ExitCode() == 5 && string(out) == fmt.Sprint("child ", i), "exec")
	}
	fmt.Println("go ok")
}
