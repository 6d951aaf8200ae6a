package dial

import (
	"crypto/tls"
	"errors"

	"github.com/go-zookeeper/zk"
	"github.com/jackc/pgx/v5/pgconn"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockstile/locker/internal/redisnode"
)

// refuses reports whether err is an answer that stays the same until somebody changes a
// setting, here or there: the user, the password, a permission, a database that is not
// there, a certificate. Silence may pass, and so may the answer of a server that starts.
func refuses(err error) bool {
	var certificate *tls.CertificateVerificationError
	return err != nil && (redisnode.Refused(err) || refusedByPostgres(err) || refusedByEtcd(err) ||
		errors.Is(err, zk.ErrNoAuth) || errors.Is(err, zk.ErrAuthFailed) || errors.As(err, &certificate))
}

func refusedByPostgres(err error) bool {
	var reply *pgconn.PgError
	if !errors.As(err, &reply) || len(reply.Code) < 2 {
		return false
	}
	switch reply.Code[:2] {
	case "22", "28", "3D", "42": // parameters, credentials, the database, permissions and tables
		return true
	}
	return false
}

func refusedByEtcd(err error) bool {
	code := status.Code(err)
	if reply := (rpctypes.EtcdError{}); errors.As(err, &reply) {
		code = reply.Code()
	}
	switch code {
	case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated, codes.FailedPrecondition:
		return true
	}
	return false
}
