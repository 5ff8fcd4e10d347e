package upstream

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// Certificates names the files for mutual TLS with the services. They may be replaced at any time:
// new connections use the present content.
type Certificates struct {
	// Certificate of REST with its chain, and Key, its private key; both PEM.
	Certificate, Key string
	// Authorities that issue the services' certificates, as PEM.
	Authorities string
	// Refresh is the interval of checks for replaced files.
	Refresh time.Duration
}

// Credentials returns the transport credentials of channels: plain text without a configuration.
func Credentials(configuration *tls.Config) credentials.TransportCredentials {
	if configuration == nil {
		return insecure.NewCredentials()
	}
	return credentials.NewTLS(configuration)
}

// TLS returns the configuration of calls to services; nil, which is plain text, if no files are named.
func (c Certificates) TLS(log *slog.Logger) (*tls.Config, error) {
	if c.Certificate == "" {
		return nil, nil //nolint:nilnil // plain text is no error
	}
	held, err := c.read()
	if err != nil {
		return nil, err
	}
	files := &files{names: c, log: log, held: held, looked: time.Now()}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &files.current().own, nil
		},
		// The library's check uses the authorities of the start; VerifyConnection does the same check
		// with the present ones.
		InsecureSkipVerify: true,
		VerifyConnection:   files.verify,
	}, nil
}

// content is a snapshot of the files.
type content struct {
	own         tls.Certificate
	authorities *x509.CertPool
	stamps      [3]stamp
}

type stamp struct {
	changed time.Time
	size    int64
}

type files struct {
	names  Certificates
	log    *slog.Logger
	mutex  sync.Mutex
	held   content
	looked time.Time
}

// current returns the content of the files, or the last valid one.
func (f *files) current() *content {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	held := f.held
	if time.Since(f.looked) < f.names.Refresh {
		return &held
	}
	f.looked = time.Now()
	if f.names.stamps() == held.stamps {
		return &held
	}
	read, err := f.names.read()
	if err != nil {
		f.log.Error("certificate not replaced", "problem", err.Error())
		f.held.stamps = f.names.stamps()
		return &held
	}
	f.log.Info("certificate replaced", "file", f.names.Certificate)
	f.held = read
	return &read
}

// verify checks the chain and the host name of a service's certificate.
func (f *files) verify(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("the service shows no certificate")
	}
	between := x509.NewCertPool()
	for _, certificate := range state.PeerCertificates[1:] {
		between.AddCert(certificate)
	}
	_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{
		DNSName: state.ServerName, Roots: f.current().authorities, Intermediates: between,
	})
	return err
}

func (c Certificates) read() (content, error) {
	read := content{authorities: x509.NewCertPool(), stamps: c.stamps()}
	var err error
	if read.own, err = tls.LoadX509KeyPair(c.Certificate, c.Key); err != nil {
		return content{}, fmt.Errorf("BOS_TLS_CERT_FILE and BOS_TLS_KEY_FILE cannot be used: %w", err)
	}
	authorities, err := os.ReadFile(c.Authorities)
	if err != nil {
		return content{}, fmt.Errorf("BOS_TLS_CA_FILE cannot be read: %w", err)
	}
	if !read.authorities.AppendCertsFromPEM(authorities) {
		return content{}, errors.New("BOS_TLS_CA_FILE holds no certificate in PEM form")
	}
	return read, nil
}

// stamps change when a file is replaced; zero for a missing file.
func (c Certificates) stamps() [3]stamp {
	var found [3]stamp
	for i, name := range []string{c.Certificate, c.Key, c.Authorities} {
		if info, err := os.Stat(name); err == nil {
			found[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return found
}
