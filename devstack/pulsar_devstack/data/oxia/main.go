// Command oxia serves one Oxia node with its data in one folder. It keeps the versions that a migration writes
// (override_version_id, override_modifications_count) and takes the flags of `oxia standalone` and, for TLS and
// authentication, those of `oxia server` that the stack uses.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/oxia-db/oxia/common/process"
	"github.com/oxia-db/oxia/common/proto"
	"github.com/oxia-db/oxia/common/security"
	"github.com/oxia-db/oxia/oxiad/common/rpc/auth"
	"github.com/oxia-db/oxia/oxiad/dataserver"
	"github.com/oxia-db/oxia/oxiad/dataserver/option"
)

func main() {
	if len(os.Args) < 2 || os.Args[1] != "standalone" {
		fmt.Fprintln(os.Stderr, "usage: oxia standalone [flags]")
		os.Exit(2)
	}
	flags := flag.NewFlagSet("standalone", flag.ExitOnError)
	address := flags.String("p", "127.0.0.1:6648", "public address")
	metrics := flags.String("m", "127.0.0.1:8080", "metrics address")
	shards := flags.Uint("s", 1, "number of shards")
	dataFolder := flags.String("data-dir", "./data/db", "folder of the database")
	walFolder := flags.String("wal-dir", "./data/wal", "folder of the write-ahead log")
	walSync := flags.Bool("wal-sync-data", true, "sync the write-ahead log")
	certificate := flags.String("tls-cert-file", "", "certificate (PEM) of the public address, which has TLS then")
	key := flags.String("tls-key-file", "", "key (PEM) of the certificate")
	authorities := flags.String("tls-trusted-ca-file", "", "authorities (PEM) of clients' certificates")
	clientAuth := flags.Bool("tls-client-auth", false, "require a client's certificate")
	provider := flags.String("auth-provider-name", "", "how tokens are checked: oidc")
	providerParams := flags.String("auth-provider-params", "", "issuers, audiences and keys of the tokens (JSON)")
	_ = flags.Parse(os.Args[2:])

	options := option.NewDefaultOptions()
	options.Server.Public.BindAddress = *address
	options.Server.Public.TLS = security.TLSOptions{
		CertFile: *certificate, KeyFile: *key, TrustedCaFile: *authorities, ClientAuth: *clientAuth,
	}
	options.Server.Public.Auth = auth.Options{Provider: *provider, ProviderParams: *providerParams}
	options.Observability.Metric.BindAddress = *metrics
	options.Storage.Database.Dir = *dataFolder
	options.Storage.WAL.Dir = *walFolder
	options.Storage.WAL.Sync = walSync
	process.RunProcess(func() (io.Closer, error) {
		return dataserver.NewStandalone(dataserver.StandaloneConfig{
			DataServerOptions:    *options,
			NumShards:            uint32(*shards),
			NotificationsEnabled: true,
			// Pulsar lists the children of a path, which takes keys that sort by depth.
			KeySorting: proto.KeySortingType_HIERARCHICAL,
		})
	})
}
