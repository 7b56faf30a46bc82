package main

import (
	_ "helm.sh/helm/v4/pkg/chart/v2/lint"
	_ "k8s.io/api/apps/v1"
	_ "k8s.io/api/rbac/v1"
)
