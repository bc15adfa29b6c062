package topology

import (
	"context"
	"fmt"
	"slices"

	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/statestore/restclient"
)

// Check says what of the options a node cannot work with, as far as that is
// known without asking brokers, store or catalog.
func (o NodeOptions) Check(ctx context.Context) error {
	if err := o.check(); err != nil {
		return err
	}
	if _, err := NewTopics(o.Deployment, o.Partitions, 0, len(o.Brokers) == 0); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if o.Remote != nil {
		if err := restclient.CheckOptions(*o.Remote); err != nil {
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
	if o.Deployment == "" {
		o.Deployment = DefaultDeployment
	}
	if len(o.Roles) == 0 {
		o.Roles = []string{RoleIngest, RoleState, RolePublisher}
	}
	for _, r := range o.Roles {
		if r != RoleIngest && r != RoleState && r != RolePublisher {
			return fmt.Errorf("%w: unknown role %q: roles are ingest, state, publisher", ErrConfig, r)
		}
	}
	if slices.Contains(o.Roles, RolePublisher) && !slices.Contains(o.Roles, RoleState) {
		return fmt.Errorf("%w: the publisher sits with the state: name both roles", ErrConfig)
	}
	return o.checkGroups()
}
