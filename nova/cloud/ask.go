package cloud

import (
	"context"
	"errors"

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

// except returns err, or nil if it is of a kind that means that nothing is left to do.
func except(kind, err error) error {
	if errors.Is(err, kind) {
		return nil
	}
	return err
}
