package service

import (
	"logbook/engine/controller"
	"logbook/engine/metadata"
)

// UserChange is package controller's, for fronts.
type UserChange = controller.UserChange

// ChangeUser gives a user credentials, or takes some away.
//
// Errors: BadRequest, around *controller.UnknownUserError, *metadata.MechanismError and
// *metadata.IterationsError; Unavailable.
func (s *Service) ChangeUser(change UserChange, done func(error)) {
	s.order(Command{ChangeUser: &change}, func(_ controller.FailoverResult, err error) { done(err) })
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
