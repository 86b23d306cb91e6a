package wire

// User is somebody who can prove who they are.
type User struct {
	Name       string   `json:"name"`
	Mechanisms []string `json:"mechanisms" doc:"for which a password is kept: SCRAM-SHA-256, SCRAM-SHA-512"`
}

// ListUsersReply lists users, sorted.
type ListUsersReply struct {
	Users []User `json:"users"`
}

// SetPassword gives a user a password. What is kept of it does not tell it.
type SetPassword struct {
	Name       string   `json:"name" doc:"1 to 249 bytes"`
	Password   string   `json:"password"`
	Mechanisms []string `json:"mechanisms,omitempty" doc:"none: all"`
}

// DeleteUser names a user.
type DeleteUser struct {
	Name string `json:"name"`
}
