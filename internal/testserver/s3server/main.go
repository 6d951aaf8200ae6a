// Command s3server is an S3 server that keeps objects in a folder: versitygw with its posix backend, for tests. It is a module of its
// own: what a server needs is not what users of a lock need.
//
//	s3server -access key -secret secret -listen 127.0.0.1:7070 -data folder
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"path/filepath"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	const many = 10_000
	cfg := &embedgw.Config{
		MaxConnections: many, MaxRequests: many, MultipartMaxParts: many,
		KeepAlive: true, Quiet: true, HealthPath: "/health",
	}
	flag.StringVar(&cfg.RootUserAccess, "access", "", "the access key")
	flag.StringVar(&cfg.RootUserSecret, "secret", "", "the secret key")
	listen := flag.String("listen", "", "the address to listen on")
	data := flag.String("data", "", "the folder of buckets and versions, which is made")
	flag.Parse()
	cfg.Ports = []string{*listen}
	log.Fatal(serve(*data, cfg))
}

func serve(data string, cfg *embedgw.Config) error {
	buckets, sidecar, versions := filepath.Join(data, "buckets"), filepath.Join(data, "metadata"), filepath.Join(data, "versions")
	for _, folder := range []string{buckets, sidecar, versions} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return err
		}
	}
	attributes, opts := meta.MetadataStorer(meta.XattrMeta{}), posix.PosixOpts{VersioningDir: versions, Concurrency: 1000}
	if (meta.XattrMeta{}).Test(buckets) != nil { // the file system has no extended attributes for ETags
		files, err := meta.NewSideCar(sidecar)
		if err != nil {
			return err
		}
		attributes, opts.SideCarDir = files, sidecar
	}
	objects, err := posix.New(buckets, attributes, opts)
	if err != nil {
		return err
	}
	return embedgw.RunVersityGW(context.Background(), objects, cfg)
}
