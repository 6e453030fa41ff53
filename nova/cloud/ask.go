package cloud

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/gophercloud/gophercloud/v2/pagination"
)

// answerOf makes a request as [Cloud.ask] does, and returns its answer.
func answerOf[T any](ctx context.Context, c *Cloud, what string, request func(context.Context) (T, error)) (answer T, err error) {
	err = c.ask(ctx, what, func(ctx context.Context) (err error) {
		answer, err = request(ctx)
		return err
	})
	return answer, err
}

// listOf returns the objects that extract finds in all pages of a list, as from returns each; nil
// for none.
func listOf[A, T any](ctx context.Context, c *Cloud, what string, pager pagination.Pager,
	extract func(pagination.Page) ([]A, error), from func(*A) T,
) ([]T, error) {
	return answerOf(ctx, c, what, func(ctx context.Context) (all []T, err error) {
		pages, err := pager.AllPages(ctx)
		if err != nil {
			return nil, err
		}
		list, err := extract(pages)
		for i := range list {
			all = append(all, from(&list[i]))
		}
		return all, err
	})
}

// objectsOf returns an extract for [listOf] that reads the objects below a key of a list as A, where the
// type of gophercloud lacks fields, or requires some that an answer may lack.
func objectsOf[A any](key string) func(pagination.Page) ([]A, error) {
	return func(page pagination.Page) (list []A, err error) {
		of, ok := page.(interface{ ExtractInto(any) error })
		if !ok {
			return nil, fmt.Errorf("not a list of %s: %T", key, page)
		}
		body := map[string]json.RawMessage{}
		if err = of.ExtractInto(&body); err == nil {
			err = json.Unmarshal(body[key], &list)
		}
		return list, err
	}
}

// except returns err, or nil if it is of a kind that means that nothing is left to do.
func except(kind, err error) error {
	if errors.Is(err, kind) {
		return nil
	}
	return err
}

// beside is how many requests [AskAll] makes at the same time, and its failures until the end.
const beside = 8

// AskAll calls ask for each index below n, several at the same time. It stops after several
// failures: a Placement that does not answer would otherwise be waited for once for each of
// thousands. The error has the first failure, with the number of things whose answer is missing.
func AskAll(ctx context.Context, n int, things string, ask func(i int) error) error {
	failures := make(chan error, n)
	var wait sync.WaitGroup
	free := make(chan struct{}, beside)
	answered := make([]bool, n)
	for i := range n {
		free <- struct{}{}
		if ctx.Err() != nil || len(failures) >= beside {
			break
		}
		wait.Go(func() {
			defer func() { <-free }()
			err := ask(i)
			if answered[i] = err == nil; err != nil {
				failures <- err
			}
		})
	}
	wait.Wait()
	missing := 0
	for _, ok := range answered {
		if !ok {
			missing++
		}
	}
	if missing == 0 {
		return nil
	}
	err := context.Cause(ctx)
	if len(failures) > 0 {
		err = <-failures
	}
	return fmt.Errorf("%d of %d %s could not be read: %w", missing, n, things, err)
}
