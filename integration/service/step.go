package service

import (
	"context"
	"sync"
)

// A Step is a part of what is to be done.
type Step func(context.Context) error

// InTurn is steps one after the other, up to the first that fails.
func InTurn(steps ...Step) Step {
	return func(ctx context.Context) error {
		for _, step := range steps {
			if err := step(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

// Together is steps at the same time. It ends when all have ended; the first that
// fails cancels the others and has its error returned.
func Together(steps ...Step) Step {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		var all sync.WaitGroup
		for _, step := range steps {
			all.Go(func() {
				if err := step(ctx); err != nil {
					cancel(err)
				}
			})
		}
		all.Wait()
		return context.Cause(ctx)
	}
}
