// Package broker is the process around the engine: its settings, its logging and its
// HTTP side. It owns the listeners it opens and the goroutines that serve them; Serve
// returns when they have ended.
package broker

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"unicode"
)

// Settings configure a broker process. They come from LOGBOOK_* environment variables;
// see LoadSettings.
type Settings struct {
	AppName   string     // LOGBOOK_APP_NAME: the service name that health reports
	Host      string     // LOGBOOK_HOST: the address to bind, loopback unless told otherwise
	Port      int        // LOGBOOK_PORT: 0 lets the system pick one
	LogLevel  slog.Level // LOGBOOK_LOG_LEVEL: debug, info, warn or error
	LogFormat string     // LOGBOOK_LOG_FORMAT: text or json
}

// DefaultSettings are what an empty environment gives.
func DefaultSettings() Settings {
	return Settings{AppName: "logbook", Host: "127.0.0.1", Port: 8000, LogLevel: slog.LevelInfo, LogFormat: "text"}
}

// SettingError says which variable holds what it may not hold, and what it may.
type SettingError struct {
	Variable string
	Value    string
	Want     string
}

func (e *SettingError) Error() string {
	return fmt.Sprintf("%s is %q, it must be %s", e.Variable, e.Value, e.Want)
}

// setting is one variable: set stores a value, or returns false when it is not a valid one.
type setting struct {
	variable string
	want     string
	set      func(*Settings, string) bool
}

var settings = []setting{
	{"LOGBOOK_APP_NAME", "1 to 100 printable characters", func(s *Settings, v string) bool {
		s.AppName = v
		return v != "" && len(v) <= 100 && !strings.ContainsFunc(v, func(r rune) bool { return !unicode.IsPrint(r) })
	}},
	{"LOGBOOK_HOST", "an IP address or a host name", func(s *Settings, v string) bool {
		s.Host = v
		return v != "" && !strings.ContainsAny(v, " /[]\t\n") && (net.ParseIP(v) != nil || !strings.Contains(v, ":"))
	}},
	{"LOGBOOK_PORT", "a port from 0 (any free one) to 65535", func(s *Settings, v string) bool {
		n, err := strconv.Atoi(v)
		s.Port = n
		return err == nil && n >= 0 && n <= 65535
	}},
	{"LOGBOOK_LOG_LEVEL", "debug, info, warn or error", func(s *Settings, v string) bool {
		return s.LogLevel.UnmarshalText([]byte(v)) == nil
	}},
	{"LOGBOOK_LOG_FORMAT", "text or json", func(s *Settings, v string) bool {
		s.LogFormat = v
		return v == "text" || v == "json"
	}},
}

// LoadSettings reads the settings with lookup, which has the shape of os.LookupEnv. It
// reports every bad variable, each as a *SettingError, not only the first. A variable
// that is not set, or empty, leaves the default.
func LoadSettings(lookup func(string) (string, bool)) (Settings, error) {
	s := DefaultSettings()
	var problems []error
	for _, v := range settings {
		value, _ := lookup(v.variable)
		if value != "" && !v.set(&s, value) {
			problems = append(problems, &SettingError{Variable: v.variable, Value: value, Want: v.want})
		}
	}
	if len(problems) > 0 {
		return Settings{}, fmt.Errorf("broker: bad settings: %w", errors.Join(problems...))
	}
	return s, nil
}

// Variables lists the environment variables that LoadSettings reads and what each may hold.
func Variables() [][2]string {
	var out [][2]string
	for _, v := range settings {
		out = append(out, [2]string{v.variable, v.want})
	}
	return out
}

// Address is host and port to listen on.
func (s Settings) Address() string { return net.JoinHostPort(s.Host, strconv.Itoa(s.Port)) }

// NewLogger returns the process's logger, which every part of the broker is handed.
func (s Settings) NewLogger(w io.Writer) *slog.Logger {
	opt := &slog.HandlerOptions{Level: s.LogLevel}
	var h slog.Handler = slog.NewTextHandler(w, opt)
	if s.LogFormat == "json" {
		h = slog.NewJSONHandler(w, opt)
	}
	return slog.New(h).With("service", s.AppName)
}
