package server_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/client"
	"logbook/engine/server"
	"logbook/engine/wire"
)

// Where clients' certificates are asked for, who has none, or a stranger's, is not let in; and the
// brokers, who have theirs, find one another.
func TestClientsCertificates(t *testing.T) {
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return file
	}
	files := func(name string) (certFile, keyFile string) {
		cert, _ := certificate(t)
		key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
		require.NoError(t, err)
		return write(name+".crt", "CERTIFICATE", cert.Certificate[0]), write(name+".key", "PRIVATE KEY", key)
	}
	certFile, keyFile := files("ours")
	strangerCert, strangerKey := files("stranger")
	s, err := server.LoadSettings(environment(map[string]string{
		"LOGBOOK_TLS_CERT": certFile, "LOGBOOK_TLS_KEY": keyFile, "LOGBOOK_TLS_CA": certFile, "LOGBOOK_TLS_CLIENT_CA": certFile,
	}))
	require.NoError(t, err)
	cfg, err := s.Config(slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	w := newNetwork(t, 2, func(c *server.Config) { c.ServerTLS, c.PeerTLS = cfg.ServerTLS, cfg.PeerTLS })
	dial := func(certFile, keyFile string) error {
		own, err := server.ClientTLS(filepath.Join(dir, "ours.crt"))
		require.NoError(t, err)
		require.NoError(t, server.WithCertificate(own, certFile, keyFile))
		c, err := client.New(client.Options{Brokers: w.Addresses(), TLS: own, Patience: 300 * time.Millisecond})
		require.NoError(t, err)
		defer c.Close()
		_, err = c.Metadata(t.Context())
		return err
	}
	require.NoError(t, dial(certFile, keyFile))
	assert.Error(t, dial("", ""))
	assert.Error(t, dial(strangerCert, strangerKey))

	own := &tls.Config{RootCAs: cfg.PeerTLS.RootCAs, Certificates: cfg.PeerTLS.Certificates}
	c, err := client.New(client.Options{Brokers: w.Addresses(), TLS: own})
	require.NoError(t, err)
	defer c.Close()
	_, err = c.CreateTopic(t.Context(), wire.CreateTopic{Name: "t", Partitions: 1, Replication: 2})
	require.NoError(t, err)
	_, err = c.Produce(t.Context(), "t", 0, "all", value("both have it"))
	require.NoError(t, err)

	for name, bad := range map[string]map[string]string{
		"no TLS":   {"LOGBOOK_TLS_CLIENT_CA": certFile},
		"no file":  {"LOGBOOK_TLS_CERT": certFile, "LOGBOOK_TLS_KEY": keyFile, "LOGBOOK_TLS_CLIENT_CA": filepath.Join(dir, "none")},
		"not PEM":  {"LOGBOOK_TLS_CERT": certFile, "LOGBOOK_TLS_KEY": keyFile, "LOGBOOK_TLS_CLIENT_CA": keyFile},
		"no key":   {"LOGBOOK_TLS_CERT": certFile},
		"mismatch": {"LOGBOOK_TLS_CERT": certFile, "LOGBOOK_TLS_KEY": strangerKey},
	} {
		s, err := server.LoadSettings(environment(bad))
		require.NoError(t, err, name)
		_, err = s.Config(slog.New(slog.DiscardHandler))
		assert.Error(t, err, name)
	}
}
