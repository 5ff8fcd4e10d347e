package upstream

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
)

const patience = 60 * time.Second

type authority struct {
	t           *testing.T
	folder      string
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
	serial      int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	a := &authority{t: t, folder: t.TempDir(), key: key}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	a.certificate, err = x509.ParseCertificate(der)
	must(t, err)
	a.write("ca", "CERTIFICATE", der)
	return a
}

// issue writes a certificate for a host; returns its files and the parsed certificate.
func (a *authority) issue(name, host string) (Certificates, tls.Certificate) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(a.t, err)
	a.serial++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(100 + a.serial), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{host},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	must(a.t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(a.t, err)
	named := Certificates{
		Certificate: a.write(name+".cert", "CERTIFICATE", der),
		Key:         a.write(name+".key", "PRIVATE KEY", private),
		Authorities: filepath.Join(a.folder, "ca"), Refresh: time.Nanosecond,
	}
	own, err := tls.LoadX509KeyPair(named.Certificate, named.Key)
	must(a.t, err)
	return named, own
}

func (a *authority) write(name, kind string, der []byte) string {
	a.t.Helper()
	path := filepath.Join(a.folder, name)
	must(a.t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return path
}

type harness struct {
	healthpb.UnimplementedHealthServer
	inner  *health.Server
	serial atomic.Int64
}

func (h *harness) Check(
	ctx context.Context, request *healthpb.HealthCheckRequest,
) (*healthpb.HealthCheckResponse, error) {
	caller, _ := peer.FromContext(ctx)
	shown := caller.AuthInfo.(credentials.TLSInfo).State.PeerCertificates
	h.serial.Store(shown[0].SerialNumber.Int64())
	return h.inner.Check(ctx, request)
}

// serve starts a server that requires certificates of `believed`; returns it and its address.
func serve(t *testing.T, own tls.Certificate, believed *authority) (*harness, string) {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(believed.certificate)
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{own}, ClientCAs: pool,
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
	})))
	h := &harness{inner: health.NewServer()}
	healthpb.RegisterHealthServer(server, h)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	_, port, err := net.SplitHostPort(listener.Addr().String())
	must(t, err)
	return h, "localhost:" + port
}

// check calls the server over a connection of its own.
func check(t *testing.T, target string, creds credentials.TransportCredentials) error {
	t.Helper()
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(creds), grpc.WithNoProxy())
	must(t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	return err
}

func credentialsOf(t *testing.T, named Certificates) credentials.TransportCredentials {
	t.Helper()
	configuration, err := named.TLS(slog.Default())
	must(t, err)
	return Credentials(configuration)
}

func TestMutualTLSWithServices(t *testing.T) {
	ours := newAuthority(t)
	_, serving := ours.issue("gateway", "localhost")
	_, target := serve(t, serving, ours)
	rest, _ := ours.issue("rest", "rest")
	creds := credentialsOf(t, rest)
	must(t, check(t, target, creds))

	if check(t, target, credentialsOf(t, Certificates{})) == nil {
		t.Error("a call in plain text got through")
	}
}

func TestServiceWithUnknownAuthorityOrOtherNameIsRefused(t *testing.T) {
	ours, foreign := newAuthority(t), newAuthority(t)
	rest, _ := ours.issue("rest", "rest")
	creds := credentialsOf(t, rest)
	_, foreignPair := foreign.issue("gateway", "localhost")
	_, elsewhere := ours.issue("gateway", "memory.example.org")
	for name, serving := range map[string]tls.Certificate{"foreign": foreignPair, "name": elsewhere} {
		if _, target := serve(t, serving, ours); check(t, target, creds) == nil {
			t.Errorf("%s: believed", name)
		}
	}
}

func TestReplacedCertificateIsUsedWithoutRestart(t *testing.T) {
	ours := newAuthority(t)
	_, serving := ours.issue("gateway", "localhost")
	h, target := serve(t, serving, ours)
	rest, _ := ours.issue("rest", "rest")
	creds := credentialsOf(t, rest)
	must(t, check(t, target, creds))
	first := h.serial.Load()

	must(t, os.WriteFile(rest.Key, []byte("half a key"), 0o600))
	must(t, check(t, target, creds))
	if h.serial.Load() != first {
		t.Error("a broken file changed the certificate")
	}
	ours.issue("rest", "rest")
	must(t, check(t, target, creds))
	if h.serial.Load() == first {
		t.Error("the old certificate is still shown")
	}
}

func TestInvalidCertificateFilesFailTheStart(t *testing.T) {
	ours := newAuthority(t)
	good, _ := ours.issue("rest", "rest")
	empty := filepath.Join(t.TempDir(), "empty")
	must(t, os.WriteFile(empty, nil, 0o600))
	for _, bad := range []string{empty, empty + ".missing"} {
		for _, broken := range []Certificates{
			{Certificate: bad, Key: good.Key, Authorities: good.Authorities},
			{Certificate: good.Certificate, Key: bad, Authorities: good.Authorities},
			{Certificate: good.Certificate, Key: good.Key, Authorities: bad},
		} {
			if _, err := broken.TLS(slog.Default()); err == nil {
				t.Errorf("%+v was accepted", broken)
			}
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
