package service

import (
	"time"

	"logbook/engine/controller"
	"logbook/engine/metadata"
)

// UserChange is package controller's, for fronts.
type UserChange = controller.UserChange

// ChangeUser gives a user credentials, or takes some away.
//
// Errors: NotCoordinator (decisions are made on another broker), BadRequest, around
// *controller.UnknownUserError, *metadata.MechanismError and *metadata.IterationsError;
// Unavailable.
func (s *Service) ChangeUser(change UserChange, done func(error)) {
	if err := s.elsewhere("users are changed on the broker that keeps the decisions"); err != nil {
		done(err)
		return
	}
	s.command(func(now time.Time, id uint64) []controller.Effect { return s.controller.ChangeUser(now, id, change) },
		func(d controller.Done) { done(s.fail(d.Err)) })
}

// IsUser reports whether a password is a user's.
func (s *Service) IsUser(name, password string) bool {
	for m, c := range s.Image().User(name) {
		return c.Is(m, password) // of the same password, whichever is looked at
	}
	return false
}

// Credential returns what is kept of a user's password for a mechanism.
func (s *Service) Credential(name string, m metadata.Mechanism) (metadata.Credential, bool) {
	c, ok := s.Image().User(name)[m]
	return c, ok
}
