package server

import (
	"encoding/json"
	"net/http"
)

// Health is the answer to GET /api/health.
type Health struct {
	Status  string `json:"status" doc:"ok"`
	Service string `json:"service" doc:"LOGBOOK_APP_NAME"`
}

// Health answers GET /api/health: the process is there, and answers.
func (s Settings) Health() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(Health{Status: "ok", Service: s.AppName}) // who went away need not be told
	})
}
