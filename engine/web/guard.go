package web

import (
	"crypto/subtle"
	"net"
	"net/http"
	"slices"
	"strings"

	"logbook/engine/server"
)

// secure sets headers that keep other sites from using the page, and answers only to names
// that the broker goes by: else a stranger's page could have its own name point here, and
// read what there is (DNS rebinding).
func secure(next http.Handler, s server.Settings) http.Handler {
	known := []string{"localhost", s.Host}
	for _, address := range []string{s.Advertise, s.KafkaHost} {
		if host, _, err := net.SplitHostPort(address); err == nil {
			known = append(known, host)
		}
	}
	known = append(known, s.WebHosts...)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("X-Frame-Options", "DENY")
		policy := "default-src 'self'; frame-ancestors 'none'; form-action 'none'; base-uri 'none'"
		if strings.HasPrefix(r.URL.Path, "/docs/") {
			policy += "; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:" // as its pages are written
		}
		w.Header().Set("Content-Security-Policy", policy)
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		host = strings.Trim(host, "[]")
		if net.ParseIP(host) == nil && !slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, host) }) {
			http.Error(w, "this broker does not go by that name; LOGBOOK_WEB_HOSTS lists those that it does", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// guard asks for what clients must prove: the token, as a bearer token or as the password of a
// browser's dialogue, whatever the name; or a user's name and password. Whether the broker is
// well anybody may ask.
func guard(next http.Handler, s server.Settings, isUser func(name, password string) bool) http.Handler {
	if s.Token == "" && !s.Authenticate {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		name := ""
		if !bearer {
			name, given, _ = r.BasicAuth()
		}
		open := r.URL.Path == "/api/health" || r.URL.Path == "/api/ready"
		has := s.Token != "" && subtle.ConstantTimeCompare([]byte(given), []byte(s.Token)) == 1
		if !open && !has && (name == "" || !isUser(name, given)) {
			w.Header().Set("WWW-Authenticate", `Basic realm="logbook: a user's name and password, or the token as the password"`)
			http.Error(w, "give the brokers' token, as a bearer token or as the password, or a user's name and password", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}
