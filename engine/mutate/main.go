// Mutate plants bugs in the log and in replication, one at a time, and shows that each is
// caught: those in the log by its tests, those in replication by the simulator, within a
// stated number of seeds.
//
//	go run ./engine/mutate            all
//	go run ./engine/mutate no-poison  some
//
// It changes no file: the go tool compiles the mutant from an overlay.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	survived := 0
	tried := 0
	for _, m := range mutants {
		if len(os.Args) > 1 && !slices.Contains(os.Args[1:], m.name) {
			continue
		}
		tried++
		start := time.Now()
		by, err := m.run()
		switch {
		case err != nil:
			fmt.Fprintln(os.Stderr, "mutate:", m.name+":", err)
			os.Exit(2)
		case by == "":
			survived++
			fmt.Printf("SURVIVED  %-28s %s\n", m.name, m.bug)
		default:
			fmt.Printf("caught    %-28s %s\n          by %s, in %.1fs\n", m.name, m.bug, by, time.Since(start).Seconds())
		}
	}
	fmt.Printf("%d mutants, %d caught, %d survived\n", tried, tried-survived, survived)
	if survived > 0 || tried == 0 {
		os.Exit(1)
	}
}

// source returns the mutated file: its path and its content.
func (m mutant) source() (string, []byte, error) {
	path, err := filepath.Abs(filepath.Join("engine", filepath.FromSlash(m.file)))
	if err != nil {
		return "", nil, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", nil, err
	}
	if n := bytes.Count(data, []byte(m.old)); n != 1 {
		return "", nil, fmt.Errorf("%q stands %d times in engine/%s, it must once: adapt the mutant to the code", m.old, n, m.file)
	}
	return path, bytes.Replace(data, []byte(m.old), []byte(m.new), 1), nil
}

// seedLine is how TestPromises names what it found.
var seedLine = regexp.MustCompile(`(?m)(\S+ \S+, seed \d+: .*)`)

var failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)|^panic: (.*)`)

// run tests the mutant and returns the first test that fails, or "".
func (m mutant) run() (string, error) {
	path, mutated, err := m.source()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "mutant.go")
	if err := os.WriteFile(file, mutated, 0o644); err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: file}})
	if err != nil {
		return "", err
	}
	overlayFile := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlayFile, overlay, 0o644); err != nil {
		return "", err
	}
	args := []string{"test", "-count=1", "-vet=off", "-failfast", "-timeout", "15m", "-overlay", overlayFile}
	if m.seeds == quorumSeeds {
		own := append(slices.Clone(args), "./engine/controller/...")
		if out, err := exec.Command("go", own...).CombinedOutput(); err != nil && !strings.Contains(string(out), "[build failed]") {
			if found := failure.FindSubmatch(out); found != nil {
				return string(found[1]) + string(found[2]), nil
			}
		}
	}
	if m.seeds > 0 {
		args = append(args, "./engine/sim", "-run", "TestPromises", "-seeds", fmt.Sprint(m.seeds))
	} else {
		args = append(args, "./engine/vfs", "./engine/commitlog", "./engine/commitlog/logtest", "./engine/node", "./engine/service", "./engine/group", "./engine/kafka")
	}
	out, err := exec.Command("go", args...).CombinedOutput()
	if err == nil {
		return "", nil
	}
	if strings.Contains(string(out), "[build failed]") {
		return "", fmt.Errorf("the mutant does not compile:\n%s", out)
	}
	if m.seeds > 0 {
		// Only a violation counts: a simulation that ran out of time has found nothing.
		if found := seedLine.FindSubmatch(out); found != nil {
			return "the simulator, " + string(found[1]), nil
		}
		return "", fmt.Errorf("the simulator fails without naming a seed:\n%s", out)
	}
	if found := failure.FindSubmatch(out); found != nil {
		return string(found[1]) + string(found[2]), nil
	}
	return "", fmt.Errorf("the tests fail without naming a test:\n%s", out)
}
