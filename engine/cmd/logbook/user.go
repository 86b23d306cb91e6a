package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"logbook/engine/client"
	"logbook/engine/wire"
)

func userCommand(o *globalFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "user", Short: "List users, set their passwords and delete them",
		Long: `A user has a name and a password. Brokers keep what proves the password, for Kafka's
SCRAM-SHA-256 and SCRAM-SHA-512, and not the password. LOGBOOK_AUTHENTICATE=true makes
brokers ask who a client is; where they have a token, they ask anyway, and the token does too.
A user may do everything: there are no permissions.`,
	}
	list := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the users", Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.with(func(c *client.Client) error {
				users, err := c.Users(cmd.Context())
				if err != nil {
					return err
				}
				return o.print(cmd.OutOrStdout(), users, func(w io.Writer) {
					fmt.Fprintln(w, "USER\tMECHANISMS")
					for _, u := range users {
						fmt.Fprintf(w, "%s\t%s\n", u.Name, strings.Join(u.Mechanisms, ", "))
					}
				})
			})
		},
	}
	var mechanisms []string
	set := &cobra.Command{
		Use: "set NAME", Short: "Set a user's password, which is read from standard input", Args: args(cobra.ExactArgs(1)),
		Example: "  logbook user set alice < password-file",
		RunE: func(cmd *cobra.Command, a []string) error {
			q := wire.SetPassword{Name: a[0]}
			for _, m := range mechanisms {
				q.Mechanisms = append(q.Mechanisms, strings.ToUpper(m))
			}
			var err error
			if q.Password, err = readPassword(cmd.InOrStdin(), cmd.ErrOrStderr()); err != nil {
				return err
			}
			return o.with(func(c *client.Client) error {
				if err := c.SetPassword(cmd.Context(), q); err != nil {
					return err
				}
				return o.print(cmd.OutOrStdout(), map[string]any{"user": a[0]}, func(w io.Writer) { fmt.Fprintf(w, "%s has a password\n", a[0]) })
			})
		},
	}
	set.Flags().StringSliceVar(&mechanisms, "mechanism", nil, "SCRAM-SHA-256, SCRAM-SHA-512 (default both)")
	remove := &cobra.Command{
		Use: "delete NAME", Aliases: []string{"rm"}, Short: "Delete a user", Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, a []string) error {
			return o.with(func(c *client.Client) error {
				if err := c.DeleteUser(cmd.Context(), a[0]); err != nil {
					return err
				}
				return o.print(cmd.OutOrStdout(), map[string]any{"user": a[0]}, func(w io.Writer) { fmt.Fprintf(w, "deleted %s\n", a[0]) })
			})
		},
	}
	cmd.AddCommand(list, set, remove)
	return parent(cmd)
}

// readPassword reads a line, without showing it where it is typed.
func readPassword(in io.Reader, prompt io.Writer) (string, error) {
	if file, ok := in.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		fmt.Fprint(prompt, "password: ")
		data, err := term.ReadPassword(int(file.Fd()))
		fmt.Fprintln(prompt)
		return string(data), err
	}
	line, err := bufio.NewReader(io.LimitReader(in, 4096)).ReadString('\n')
	if err != nil && err != io.EOF {
		return "", err
	}
	if line = strings.TrimRight(line, "\r\n"); line == "" {
		return "", usageError{errors.New("there is no password on standard input")}
	}
	return line, nil
}
