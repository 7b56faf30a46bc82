package clean

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// polling is the time between two looks at the Services.
const polling = 500 * time.Millisecond

// Cluster removes the namespaces of a run, or those of all runs if run is empty. It deletes their Services first, so that a CCM removes the
// Services' objects from the cloud. After the given time for each namespace, it removes the finalizers itself. It prints each namespace to
// out, continues after errors, and returns them together with the UIDs of all the Services.
func Cluster(ctx context.Context, kube kubernetes.Interface, run string, patience time.Duration, out io.Writer) (services []string,
	err error) {
	list, err := kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: Selector(run)})
	if err != nil {
		return nil, fmt.Errorf("cannot list the namespaces of runs: %w", err)
	}
	var errs []error
	for _, ns := range list.Items {
		uids, err := removeServices(ctx, kube, ns.Name, patience, out)
		services = append(services, uids...)
		if err == nil {
			background := metav1.DeletePropagationBackground
			err = kube.CoreV1().Namespaces().Delete(ctx, ns.Name, metav1.DeleteOptions{PropagationPolicy: &background})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("cannot remove the namespace %s: %w", ns.Name, err))
			continue
		}
		_, _ = fmt.Fprintf(out, "removed the namespace %s\n", ns.Name)
	}
	return services, errors.Join(errs...)
}

// removeServices removes all Services of a namespace. It waits for a CCM as long as patience, and then removes the
// finalizers.
func removeServices(ctx context.Context, kube kubernetes.Interface, namespace string, patience time.Duration, out io.Writer) (uids []string,
	err error) {
	api := kube.CoreV1().Services(namespace)
	list, err := api.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, s := range list.Items {
		uids = append(uids, string(s.UID))
		if err := api.Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return uids, err
		}
	}
	var left []corev1.Service
	err = wait.PollUntilContextTimeout(ctx, polling, patience, true, func(ctx context.Context) (bool, error) {
		list, err := api.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		left = list.Items
		return len(left) == 0, nil
	})
	if !wait.Interrupted(err) || ctx.Err() != nil {
		return uids, err
	}
	for _, s := range left {
		_, _ = fmt.Fprintf(out, "no CCM has removed what the Service %s/%s has in the cloud: its finalizers are taken away\n", namespace,
			s.Name)
		_, err := api.Patch(ctx, s.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return uids, err
		}
	}
	return uids, nil
}
