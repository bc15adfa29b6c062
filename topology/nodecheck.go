package topology

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/varve-io/varve/statestore/objstore"
)

// Check says what of the options a node cannot work with, as far as that is
// known without asking brokers, store or catalog.
func (o NodeOptions) Check(ctx context.Context) error {
	if err := o.check(); err != nil {
		return err
	}
	if _, err := NewTopics(o.Deployment, o.Partitions, o.Jobs.Partitions, len(o.Brokers) == 0); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if o.Remote != nil {
		if err := checkOutside(o.Remote); err != nil {
			return fmt.Errorf("%w: the catalog that tables are published to: %w", ErrConfig, err)
		}
	}
	if o.Warehouse == "" {
		return nil
	}
	_, err := openWarehouse(ctx, o.Warehouse, objstore.KeepTemporaries())
	return err
}

// check is what of the options cannot work together; it fills in defaults.
func (o *NodeOptions) check() error {
	if err := checkBrokers(o.Brokers); err != nil {
		return err
	}
	if o.Deployment == "" {
		o.Deployment = DefaultDeployment
	}
	if len(o.Roles) == 0 {
		o.Roles = Roles()
	}
	for _, r := range o.Roles {
		if !slices.Contains(Roles(), r) {
			return fmt.Errorf("%w: unknown role %q: roles are %s", ErrConfig, r, strings.Join(Roles(), ", "))
		}
	}
	if slices.Contains(o.Roles, RolePublisher) && !slices.Contains(o.Roles, RoleState) {
		return fmt.Errorf("%w: the publisher sits with the state: name both roles", ErrConfig)
	}
	if slices.Contains(o.Roles, RolePlanner) && !slices.Contains(o.Roles, RoleState) {
		return fmt.Errorf("%w: the planner sits with the state: name both roles", ErrConfig)
	}
	if err := o.Jobs.check(); err != nil {
		return err
	}
	if err := o.Garbage.check(); err != nil {
		return err
	}
	return o.checkGroups()
}

// Roles are all that a node can have.
func Roles() []string {
	return []string{RoleIngest, RoleState, RolePublisher, RolePlanner, RoleCompactor}
}

func (o *JobOptions) check() error {
	if o.PlanEvery == 0 {
		o.PlanEvery = DefaultPlanEvery
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultJobTimeout
	}
	if o.Attempts == 0 {
		o.Attempts = DefaultJobAttempts
	}
	if o.MaxJobs == 0 {
		o.MaxJobs = DefaultMaxJobs
	}
	if o.CheckOutputs == 0 {
		o.CheckOutputs = DefaultCheckOutputs
	}
	const least = 100 * time.Millisecond
	if o.PlanEvery < least || o.Timeout < least || o.Attempts < 1 || o.MaxJobs < 1 || o.Workers < 0 || o.Partitions < 0 {
		return fmt.Errorf("%w: jobs are planned every %s at most and time out after %s at least; attempts, jobs, workers and partitions are one or more", ErrConfig, least, least)
	}
	return nil
}
