package apiclient

import (
	"context"
	"slices"
	"strings"

	"github.com/pkg/errors"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// Presence is which kinds of the group an API server has.
type Presence struct {
	// Served is set if it has ClusterNetworkPolicies in the version that is known here.
	Served bool
	// OtherVersions are the other versions that it has of them.
	OtherVersions []string
	// Former are the resources that came before ClusterNetworkPolicy: AdminNetworkPolicies and
	// BaselineAdminNetworkPolicies.
	Former []schema.GroupVersionResource
}

// Unknown returns why the policies of the API server cannot be read although it has some; empty if it has them in the
// version that is known, or not at all.
func (p Presence) Unknown() string {
	if p.Served || len(p.OtherVersions) == 0 {
		return ""
	}
	return "the API server has ClusterNetworkPolicies only in versions that are not known: " +
		strings.Join(p.OtherVersions, ", ")
}

// Discover asks which kinds the API server has. An error leaves that open: it is no absence.
func (c *PolicyClient) Discover(ctx context.Context) (Presence, error) {
	var group metav1.APIGroup
	err := c.get(ctx, "/apis/"+v1alpha2.GroupName, &group)
	switch {
	case apierrors.IsNotFound(err):
		return Presence{}, nil
	case err != nil:
		return Presence{}, errors.Wrapf(err, "asking for the versions of %s", v1alpha2.GroupName)
	}
	if group.Name != v1alpha2.GroupName || len(group.Versions) == 0 {
		return Presence{}, errors.Errorf("asking for the versions of %s: the answer names none", v1alpha2.GroupName)
	}
	var p Presence
	for _, v := range group.Versions {
		var list metav1.APIResourceList
		err := c.get(ctx, "/apis/"+v.GroupVersion, &list)
		switch {
		case apierrors.IsNotFound(err): // it went since the group was asked for
			continue
		case err != nil:
			return Presence{}, errors.Wrapf(err, "asking for the kinds of %s", v.GroupVersion)
		case list.GroupVersion != v.GroupVersion:
			return Presence{}, errors.Errorf("asking for the kinds of %s: the answer has those of %q", v.GroupVersion,
				list.GroupVersion)
		}
		p.add(v, list.APIResources)
	}
	return p, nil
}

// add adds the resources of one version of the group.
func (p *Presence) add(v metav1.GroupVersionForDiscovery, resources []metav1.APIResource) {
	for _, r := range resources {
		switch {
		case r.Name == resource && v.Version == v1alpha2.GroupVersion.Version:
			p.Served = true
		case r.Name == resource:
			p.OtherVersions = append(p.OtherVersions, v.Version)
		case r.Name == "adminnetworkpolicies" || r.Name == "baselineadminnetworkpolicies":
			p.addFormer(schema.GroupVersionResource{Group: v1alpha2.GroupName, Version: v.Version, Resource: r.Name})
		}
	}
}

// addFormer adds a resource, in the first of its versions, which is the one that the API server prefers.
func (p *Presence) addFormer(r schema.GroupVersionResource) {
	if !slices.ContainsFunc(p.Former, func(f schema.GroupVersionResource) bool { return f.Resource == r.Resource }) {
		p.Former = append(p.Former, r)
	}
}

// ConfirmAbsence returns an error unless the API server lists groups, and not the one of the policies. Discover reports
// the kinds absent if a path does not exist, but a proxy on the way may have given that answer.
func (c *PolicyClient) ConfirmAbsence(ctx context.Context) error {
	var groups metav1.APIGroupList
	if err := c.get(ctx, "/apis", &groups); err != nil {
		return errors.Wrap(err, "asking for the groups of kinds")
	}
	if len(groups.Groups) == 0 {
		return errors.New("the API server lists no group of kinds")
	}
	for _, g := range groups.Groups {
		if g.Name != v1alpha2.GroupName {
			continue
		}
		p, err := c.Discover(ctx)
		if err == nil && (p.Served || p.Unknown() != "") {
			err = errors.New("the API server has ClusterNetworkPolicies again")
		}
		return err
	}
	return nil
}

func (c *PolicyClient) get(ctx context.Context, path string, into runtime.Object) error {
	return c.discovery.Get().AbsPath(path).Do(ctx).Into(into)
}
