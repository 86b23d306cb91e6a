package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"logbook/engine/client"
	"logbook/engine/server"
)

// globalFlags are the flags that every command has.
type globalFlags struct {
	brokers string
	user    string
	token   string
	profile string // see loadProfile, which comes first
	tls     bool
	ca      string
	cert    string
	key     string
	json    bool
	timeout time.Duration
}

func (o *globalFlags) flags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.StringVarP(&o.brokers, "broker", "b", env("LOGBOOK_BROKERS", "127.0.0.1:9400"), "brokers to connect to, host:port,… (LOGBOOK_BROKERS)")
	f.StringVar(&o.token, "token", os.Getenv("LOGBOOK_TOKEN"), "the brokers' token, or the user's password (LOGBOOK_TOKEN)")
	f.StringVar(&o.user, "user", os.Getenv("LOGBOOK_USER"), "a user's name, whose password is the token (LOGBOOK_USER)")
	f.BoolVar(&o.tls, "tls", os.Getenv("LOGBOOK_TLS_CA") != "", "connect with TLS")
	f.StringVar(&o.ca, "tls-ca", os.Getenv("LOGBOOK_TLS_CA"), "PEM file of those who sign the brokers' certificates (LOGBOOK_TLS_CA)")
	f.StringVar(&o.cert, "tls-cert", os.Getenv("LOGBOOK_TLS_CERT"), "PEM file of the certificate that brokers ask for (LOGBOOK_TLS_CERT)")
	f.StringVar(&o.key, "tls-key", os.Getenv("LOGBOOK_TLS_KEY"), "PEM file of its key (LOGBOOK_TLS_KEY)")
	f.StringVar(&o.profile, "profile", "", "file of LOGBOOK_* variables: a path, or NAME for NAME.env in the folder logbook of your configuration (LOGBOOK_PROFILE)")
	f.BoolVar(&o.json, "json", false, "print JSON, one document a line")
	f.DurationVar(&o.timeout, "timeout", 10*time.Second, "how long to try")
	f.Lookup("token").DefValue = "" // not to be shown in help
}

func env(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

func (o *globalFlags) client() (*client.Client, error) {
	opt := client.Options{Brokers: strings.Split(o.brokers, ","), User: o.user, Token: o.token, Name: "logbook command", Patience: o.timeout, Timeout: o.timeout}
	if o.tls {
		var err error
		if opt.TLS, err = o.clientTLS(); err != nil {
			return nil, usageError{err}
		}
	}
	c, err := client.New(opt)
	if err != nil {
		return nil, usageError{err}
	}
	return c, nil
}

// clientTLS is the configuration of TLS that the flags ask for.
func (o *globalFlags) clientTLS() (*tls.Config, error) {
	cfg, err := server.ClientTLS(o.ca)
	if err == nil {
		err = server.WithCertificate(cfg, o.cert, o.key)
	}
	return cfg, err
}

// with runs f with a client.
func (o *globalFlags) with(f func(c *client.Client) error) error {
	c, err := o.client()
	if err != nil {
		return err
	}
	defer c.Close()
	return f(c)
}

// print writes a document as JSON, or lets text write it for people.
func (o *globalFlags) print(w io.Writer, v any, text func(w io.Writer)) error {
	if o.json {
		return json.NewEncoder(w).Encode(v)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	text(t)
	return t.Flush()
}

// partitionArg reads a partition from an argument.
func partitionArg(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0, usageError{fmt.Errorf("%q is no partition: it must be a number from 0 on", s)}
	}
	return n, nil
}

// progress shows how far long work has come, on a terminal. total -1: nobody knows.
func progress(w io.Writer, total int64, what string) *progressbar.ProgressBar {
	if f, ok := w.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		w = io.Discard
	}
	// No spinner of its own: its goroutine reads the bar without the bar's lock.
	bar := progressbar.NewOptions64(total, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what),
		progressbar.OptionSetSpinnerChangeInterval(0), progressbar.OptionShowCount(), progressbar.OptionShowIts(),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
	_ = bar.RenderBlank()
	return bar
}

// count writes a number with its noun: 1 record, 2 records.
func count(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
