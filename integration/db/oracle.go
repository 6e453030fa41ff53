package db

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"gpustack/host/hosttest"
)

// An oracle is oracle.py. It ends when its input does, and so with this process,
// however that ends.
type oracle struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers *bufio.Reader
	log     string

	mu sync.Mutex // one question at a time
}

// startOracle starts it and waits until it has loaded Nova's modules.
func (db *DB) startOracle(ctx context.Context) error {
	o := &oracle{log: db.log("oracle")}
	log, err := os.OpenFile(o.log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	argv := db.python("oracle.py", db.Conf())
	o.cmd = exec.Command(argv[0], argv[1:]...)
	o.cmd.Env, o.cmd.Stderr = db.environ(), log
	out, err := o.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if o.in, err = o.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := o.cmd.Start(); err != nil {
		return err
	}
	o.answers = bufio.NewReader(out)
	db.oracle = o
	_, err = o.answer(ctx)
	return err
}

// stop ends it, by force if it does not by itself.
func (o *oracle) stop() error {
	const patience = 10 * time.Second
	late := time.AfterFunc(patience, func() { o.cmd.Process.Kill() })
	defer late.Stop()
	closing := o.in.Close()
	if errors.Is(closing, os.ErrClosed) {
		closing = nil
	}
	if err := errors.Join(closing, o.cmd.Wait()); err != nil {
		return fmt.Errorf("oracle: %w; see %s", err, o.log)
	}
	return nil
}

// ask asks a question, which says in its field ask which.
func (o *oracle) ask(ctx context.Context, question any) ([]byte, error) {
	line, err := json.Marshal(question)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, err := o.in.Write(append(line, '\n')); err != nil {
		return nil, o.failure(err)
	}
	return o.answer(ctx)
}

// answer reads a line. When the context ends first, there is no oracle any more: the
// next answer would be one to this question.
func (o *oracle) answer(ctx context.Context) ([]byte, error) {
	stop := context.AfterFunc(ctx, func() { o.cmd.Process.Kill() })
	defer stop()
	line, err := o.answers.ReadBytes('\n')
	if err != nil {
		return nil, o.failure(errors.Join(err, context.Cause(ctx)))
	}
	return line, nil
}

// failure is an error with the end of what the oracle has printed.
func (o *oracle) failure(err error) error {
	const most = 4000
	log, readErr := os.ReadFile(o.log)
	return fmt.Errorf("oracle: %w; the end of %s:\n%s", errors.Join(err, readErr), o.log, log[max(0, len(log)-most):])
}

// compose has Nova's objects write what goes into a column.
func (db *DB) compose(t testing.TB, question map[string]any, into any) {
	t.Helper()
	answer, err := db.oracle.ask(t.Context(), question)
	hosttest.NoError(t, err)
	var failed struct{ Error, Message string }
	hosttest.NoError(t, errors.Join(json.Unmarshal(answer, &failed), json.Unmarshal(answer, into)))
	if failed.Error != "" {
		t.Fatalf("oracle: %s: %s: %s", question["ask"], failed.Error, failed.Message)
	}
}
