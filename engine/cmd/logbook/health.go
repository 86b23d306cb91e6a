package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"logbook/engine/server"
)

// healthCommand is for containers that have no shell: it asks the broker of this machine.
func healthCommand() *cobra.Command {
	return &cobra.Command{
		Use: "health", Short: "Ask the broker on this machine whether it is well", Args: args(cobra.NoArgs),
		Long: "Health asks GET /api/health at LOGBOOK_PORT on loopback. Exit code 0: it is well.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := server.LoadSettings(os.LookupEnv)
			if err != nil {
				return usageError{err}
			}
			host := s.Host
			if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
				host = "127.0.0.1"
			}
			c, scheme := http.Client{Timeout: 3 * time.Second}, "http"
			if s.TLSCert != "" {
				// It is this machine's own broker, and nothing is told to it: whoever signed will do.
				c.Transport, scheme = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, "https" //nolint:gosec // see above
			}
			res, err := c.Get(fmt.Sprintf("%s://%s/api/health", scheme, net.JoinHostPort(host, fmt.Sprint(s.Port))))
			if err != nil {
				return err
			}
			defer res.Body.Close()
			if res.StatusCode != http.StatusOK {
				return fmt.Errorf("the broker answers %s", res.Status)
			}
			_, err = io.Copy(cmd.OutOrStdout(), io.LimitReader(res.Body, 1<<16))
			return err
		},
	}
}
