package server_test

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/server"
)

func environment(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := vars[name]
		return v, ok
	}
}

func TestSettingsComeFromTheEnvironment(t *testing.T) {
	s, err := server.LoadSettings(environment(nil))
	require.NoError(t, err)
	assert.Equal(t, server.DefaultSettings(), s)
	assert.Equal(t, "127.0.0.1:8000", s.Address(), "loopback unless told otherwise")

	s, err = server.LoadSettings(environment(map[string]string{
		"LOGBOOK_APP_NAME": "ledger", "LOGBOOK_HOST": "::1", "LOGBOOK_PORT": "0",
		"LOGBOOK_LOG_LEVEL": "DEBUG", "LOGBOOK_LOG_FORMAT": "json",
	}))
	require.NoError(t, err)
	want := server.DefaultSettings()
	want.AppName, want.Host, want.Port, want.LogLevel, want.LogFormat = "ledger", "::1", 0, slog.LevelDebug, "json"
	assert.Equal(t, want, s)
	assert.Equal(t, "[::1]:0", s.Address())
}

func TestEveryBadSettingIsReported(t *testing.T) {
	bad := map[string]string{
		"LOGBOOK_APP_NAME": "tab\there", "LOGBOOK_HOST": "not a host", "LOGBOOK_PORT": "70000",
		"LOGBOOK_LOG_LEVEL": "loud", "LOGBOOK_LOG_FORMAT": "xml",
		"LOGBOOK_BROKER_ID": "0", "LOGBOOK_BROKER_PORT": "-1", "LOGBOOK_ADVERTISE": "here", "LOGBOOK_PEERS": "1=a:1,1=b:2",
		"LOGBOOK_CONTROLLER": "raft", "LOGBOOK_ACKS": "some", "LOGBOOK_MIN_IN_SYNC": "0", "LOGBOOK_RETENTION_AGE": "a week",
		"LOGBOOK_RETENTION_BYTES": "-1", "LOGBOOK_HEALTH_EVERY": "1ms", "LOGBOOK_TOKEN": "short",
	}
	_, err := server.LoadSettings(environment(bad))
	require.Error(t, err)
	for name, value := range bad {
		assert.ErrorContains(t, err, name)
		_, err := server.LoadSettings(environment(map[string]string{name: value}))
		var se *server.SettingError
		require.True(t, errors.As(err, &se))
		assert.Equal(t, name, se.Variable)
		assert.Equal(t, value, se.Value)
		assert.NotEmpty(t, se.Want)
	}
	for _, port := range []string{"-1", "65536", "http", "1e3", " 80"} {
		_, err := server.LoadSettings(environment(map[string]string{"LOGBOOK_PORT": port}))
		assert.Error(t, err, port)
	}
}

// What --help calls the default is what an empty environment gives.
func TestDefaultsAreTheOnesThatAreShown(t *testing.T) {
	shown := map[string]string{}
	for _, v := range server.Variables() {
		shown[v.Name] = v.Default
	}
	s, err := server.LoadSettings(environment(shown))
	require.NoError(t, err)
	assert.Equal(t, server.DefaultSettings(), s)
}

// A token that is too short is a secret all the same.
func TestSecretsAreNotPrinted(t *testing.T) {
	for _, name := range []string{"LOGBOOK_TOKEN", "LOGBOOK_PEER_TOKEN"} {
		_, err := server.LoadSettings(environment(map[string]string{name: "hunter2"}))
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "hunter2")
		assert.Contains(t, err.Error(), name)
	}
}
