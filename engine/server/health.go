package server

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// Health is the answer to GET /api/health and GET /api/ready.
type Health struct {
	Status   string   `json:"status" doc:"ok, or degraded where there is something that the broker cannot do"`
	Service  string   `json:"service" doc:"LOGBOOK_APP_NAME"`
	Problems []string `json:"problems,omitempty" doc:"what it cannot do, and why"`
}

// Problems says what the broker cannot do: decide, and use some of its replicas.
func (b *Server) Problems() []string {
	var out []string
	if problem := b.service.QuorumProblem(); problem != "" {
		out = append(out, problem)
	}
	for _, p := range b.service.Unusable() {
		out = append(out, fmt.Sprintf("%s: %v", p, b.service.Problem(p)))
	}
	return out
}

// Health answers GET /api/health: the process is there, and answers, with 200.
func (b *Server) Health(s Settings) http.Handler { return s.answerHealth(b.Problems, http.StatusOK) }

// Ready answers GET /api/ready: with 200 where the broker can do all that it should, else 503.
func (b *Server) Ready(s Settings) http.Handler {
	return s.answerHealth(b.Problems, http.StatusServiceUnavailable)
}

// Health answers GET /api/health where there is no broker yet: the process is there.
func (s Settings) Health() http.Handler {
	return s.answerHealth(func() []string { return nil }, http.StatusOK)
}

func (s Settings) answerHealth(problems func() []string, otherwise int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := Health{Status: "ok", Service: s.AppName, Problems: problems()}
		w.Header().Set("Content-Type", "application/json")
		if len(h.Problems) > 0 {
			h.Status = "degraded"
			w.WriteHeader(otherwise)
		}
		_ = json.NewEncoder(w).Encode(h) // who went away need not be told
	})
}
