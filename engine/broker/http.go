package broker

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Health is the answer to GET /api/health.
type Health struct {
	Status  string `json:"status"` // "ok"
	Service string `json:"service"`
}

// Handler returns the broker's HTTP side.
func Handler(s Settings, logger *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/health", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, logger, Health{Status: "ok", Service: s.AppName})
	})
	return logRequests(mux, logger)
}

func writeJSON(w http.ResponseWriter, logger *slog.Logger, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		logger.Debug("client went away", "error", err)
	}
}

func logRequests(next http.Handler, logger *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sw := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(sw, r)
		logger.Debug("request", "method", r.Method, "path", r.URL.Path, "status", sw.status)
	})
}

type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Listen opens the address that the settings name.
func Listen(ctx context.Context, s Settings) (net.Listener, error) {
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp", s.Address())
}

// Serve answers HTTP on ln until ctx ends, then finishes what it accepted and returns.
// It closes ln.
func Serve(ctx context.Context, ln net.Listener, s Settings, logger *slog.Logger) error {
	srv := &http.Server{
		Handler:           Handler(s, logger),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
	logger.Info("serving", "address", ln.Addr().String(), "health", "http://"+ln.Addr().String()+"/api/health")
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(ln) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	logger.Info("shutting down")
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	err := srv.Shutdown(grace)
	if serr := <-failed; err == nil && !errors.Is(serr, http.ErrServerClosed) {
		err = serr
	}
	return err
}
