package api

// injectFaults applies the fault rules that match the request.
func (a *API) injectFaults(next Handler) Handler { return next }
