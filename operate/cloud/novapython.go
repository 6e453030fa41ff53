package cloud

import (
	"context"
	"encoding/json"
	"errors"
	"path"
	"strings"
	"time"

	"gpustack/host"
	"gpustack/nova/explain"
	"gpustack/templates"
)

// Limits of the program that asks Nova's own code, which judges all hosts in one run.
const (
	novaDeadline = 30 * time.Second
	novaAnswer   = 64 << 20 // bytes
)

// askNova asks the code of the Nova that the operator names about the request and the hosts. A
// program that fails, is late or prints anything but an answer is no answer: what it would judge is
// not judged, and why is in Unread. Its words are never run by a shell. Python itself runs as
// nobody; a command that enters a container needs its own rights.
func (e *explaining) askNova(ctx context.Context) error {
	argv := strings.Fields(e.options.NovaPython)
	if len(argv) == 0 {
		return nil
	}
	answer, err := e.answerOf(ctx, argv)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		e.facts.Unread[explain.Scheduler] = strings.Join(strings.Fields(err.Error()), " ")
	}
	e.facts.Answer = answer
	return nil
}

func (e *explaining) answerOf(ctx context.Context, argv []string) (*explain.Answer, error) {
	question, err := e.facts.Question()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(question)
	if err != nil {
		return nil, err
	}
	machine, err := host.NewRoot("/")
	if err != nil {
		return nil, err
	}
	runner := host.Runner{
		Root: machine, Stop: ctx.Done(), Limit: novaDeadline, Expendable: true, Most: novaAnswer, Input: text,
		Unprivileged: strings.HasPrefix(path.Base(argv[0]), "python"),
	}
	printed, err := runner.Run(ctx, append(argv, "-I", "-c", templates.NovaJudge))
	var failed *host.ProgramError
	switch {
	case errors.As(err, &failed): // without the text of the program
		return nil, errors.New(argv[0] + ": " + failed.Status + ": " + failed.Last)
	case errors.Is(err, host.ErrLimit):
		return nil, errors.New(argv[0] + " did not end within " + novaDeadline.String())
	case err != nil:
		return nil, host.Cause(err)
	}
	return explain.ParseAnswer(printed, question)
}
