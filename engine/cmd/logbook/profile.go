package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/joho/godotenv"
)

// A profile is a file of LOGBOOK_* variables, for brokers that one uses often. What the
// environment says counts before it, and flags before both.

// profileOf finds --profile among a command line's arguments, or LOGBOOK_PROFILE. It is
// needed before the flags are read, since variables give their defaults.
func profileOf(args []string) string {
	for i, a := range args {
		if a == "--" {
			break
		}
		if v, ok := strings.CutPrefix(a, "--profile="); ok {
			return v
		}
		if a == "--profile" && i+1 < len(args) {
			return args[i+1]
		}
	}
	return os.Getenv("LOGBOOK_PROFILE")
}

// loadProfile sets the variables of a profile that the environment does not have. name is a
// path if there is a slash in it; else NAME.env in the folder logbook of the user's
// configuration.
func loadProfile(name string) error {
	if name == "" {
		return nil
	}
	path := name
	if !strings.ContainsRune(filepath.ToSlash(name), '/') {
		dir, err := os.UserConfigDir()
		if err != nil {
			return usageError{fmt.Errorf("there is no folder for profiles: %w; give a path", err)}
		}
		path = filepath.Join(dir, "logbook", name+".env")
	}
	file, err := os.Open(path)
	if err != nil {
		return usageError{fmt.Errorf("the profile %q cannot be read: %w; it has lines like LOGBOOK_BROKERS=host:9400", name, err)}
	}
	defer file.Close()
	variables, err := godotenv.Parse(file)
	if err != nil {
		return usageError{fmt.Errorf("%s has a line that is not NAME=value", path)} // not the line: it may be a secret
	}
	for v, value := range variables {
		if !strings.HasPrefix(v, "LOGBOOK_") {
			return usageError{fmt.Errorf("%s sets %s; a profile sets LOGBOOK_* variables only", path, v)}
		}
		if _, ok := os.LookupEnv(v); !ok {
			if err := os.Setenv(v, value); err != nil {
				return err
			}
		}
	}
	return nil
}
