package controller

import (
	"fmt"
	"maps"
	"time"

	"logbook/engine/metadata"
)

// UserChange is a change of a user's credentials: of each mechanism the new one, or nil to
// take it away. A user without credentials is none.
type UserChange struct {
	Name        string
	Credentials map[metadata.Mechanism]*metadata.Credential
}

// UnknownUserError: there is no such user, or it has no such credential.
type UnknownUserError struct {
	Name      string
	Mechanism metadata.Mechanism
}

func (e *UnknownUserError) Error() string {
	return fmt.Sprintf("controller: user %q has no password for %s", e.Name, e.Mechanism)
}

// UsersError: this kind of controller keeps no users.
type UsersError struct{ Controller string }

func (e *UsersError) Error() string {
	return fmt.Sprintf("controller: %s keeps no users, since its brokers do not agree on anything; choose quorum or manual", e.Controller)
}

// Records returns the decision that a change makes.
//
// Errors: *UnknownUserError; a name or a credential that is none is found when it is applied.
func (c UserChange) Records(image *metadata.Image) ([]metadata.Record, error) {
	r := &metadata.UserRecord{Name: c.Name, Credentials: maps.Clone(image.User(c.Name))}
	if r.Credentials == nil {
		r.Credentials = map[metadata.Mechanism]metadata.Credential{}
	}
	for m, credential := range c.Credentials {
		if credential != nil {
			r.Credentials[m] = *credential
			continue
		}
		if _, has := r.Credentials[m]; !has {
			return nil, &UnknownUserError{c.Name, m}
		}
		delete(r.Credentials, m)
	}
	return []metadata.Record{{User: r}}, nil
}

// ChangeUser implements Machine.
func (m *Manual) ChangeUser(now time.Time, id uint64, c UserChange) []Effect {
	m.begin(now)
	done := func(err error) { m.emit(Done{ID: id, Err: err}) }
	if m.keeps() {
		m.change(&change{done: done, make: c.Records})
	} else {
		done(&BrokerError{fmt.Sprintf("users are changed by broker %d, which keeps the decisions", m.cfg.At)})
	}
	return m.effects()
}

// ChangeUser implements Machine.
func (c *FirstAlive) ChangeUser(now time.Time, id uint64, _ UserChange) []Effect {
	c.begin(now)
	c.emit(Done{ID: id, Err: &UsersError{c.Name()}})
	return c.effects()
}
