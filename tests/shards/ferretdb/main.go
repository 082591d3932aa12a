// A stand-alone document server for tests: FerretDB's embeddable package on SQLite.
//
// It prints one line, "ferretdb ready: mongodb://HOST:PORT/", when it listens, and ends on
// SIGTERM or SIGINT.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/FerretDB/FerretDB/ferretdb"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "TCP address to listen on")
	dir := flag.String("dir", "", "directory of the SQLite databases (created when missing)")
	flag.Parse()
	if *dir == "" {
		log.Fatal("ferretdb: -dir is required")
	}
	path, err := filepath.Abs(*dir)
	if err == nil {
		err = os.MkdirAll(path, 0o755)
	}
	if err != nil {
		log.Fatal(err)
	}

	// Sync and journal settings: the data of a test need not survive the machine, only the process.
	db, err := ferretdb.New(&ferretdb.Config{
		Listener:  ferretdb.ListenerConfig{TCP: *listen},
		Logger:    slog.New(slog.NewTextHandler(io.Discard, nil)),
		Handler:   "sqlite",
		SQLiteURL: "file:" + path + "/?_pragma=synchronous(off)",
	})
	if err != nil {
		log.Fatal(err)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- db.Run(ctx) }()
	fmt.Printf("ferretdb ready: %s\n", db.MongoDBURI())
	if err := <-done; err != nil {
		log.Fatal(err)
	}
}
