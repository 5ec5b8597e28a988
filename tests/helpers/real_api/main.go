// An API server with custom resources alone: the machinery of Kubernetes' own, and no operator or kubelet behind it.
//
// Its arguments are the URL of an etcd, a port of 127.0.0.1, and a folder for the certificate that it makes for itself.
// Who comes with the bearer token "reader" may only read; all others may do anything.
package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"

	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	"k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	names "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/kubernetes/scheme"
)

func main() {
	if err := serve(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(etcd, port, folder string) error {
	o := options.NewCustomResourceDefinitionsServerOptions(os.Stdout, os.Stderr)
	r := o.RecommendedOptions
	r.Authentication, r.Authorization, r.CoreAPI, r.Admission = nil, nil, nil, nil // these ask a whole cluster
	r.Features.EnablePriorityAndFairness = false
	r.Etcd.StorageConfig.Transport.ServerList = []string{etcd}
	r.SecureServing.BindAddress = net.IPv4(127, 0, 0, 1)
	r.SecureServing.BindPort, _ = strconv.Atoi(port)
	r.SecureServing.ServerCert.CertDirectory = folder
	config := server.NewRecommendedConfig(apiserver.Codecs)
	for _, step := range []func() error{
		o.ServerRunOptions.ComponentGlobalsRegistry.Set,
		o.Complete,
		func() error {
			return r.SecureServing.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{r.SecureServing.BindAddress})
		},
		func() error { return o.ServerRunOptions.ApplyTo(&config.Config) },
		func() error { return r.ApplyTo(config) },
		func() error {
			return o.APIEnablement.ApplyTo(&config.Config, apiserver.DefaultAPIResourceConfigSource(), apiserver.Scheme)
		},
	} {
		if err := step(); err != nil {
			return err
		}
	}
	config.Authentication.Authenticator = authenticator.RequestFunc(who)
	config.Authorization.Authorizer = authorizer.AuthorizerFunc(may)
	config.OpenAPIV3Config = server.DefaultOpenAPIV3Config(
		openapi.GetOpenAPIDefinitions, names.NewDefinitionNamer(apiserver.Scheme, scheme.Scheme))
	extra := apiserver.ExtraConfig{
		CRDRESTOptionsGetter: options.NewCRDRESTOptionsGetter(
			*r.Etcd, config.ResourceTransformers, config.StorageObjectCountTracker),
		ServiceResolver: webhook.NewDefaultServiceResolver(),
		AuthResolverWrapper: webhook.NewDefaultAuthenticationInfoResolverWrapper(
			nil, nil, config.LoopbackClientConfig, noop.NewTracerProvider()),
	}
	all := &apiserver.Config{GenericConfig: config, ExtraConfig: extra}
	made, err := all.Complete().New(server.NewEmptyDelegate())
	if err != nil {
		return err
	}
	return made.GenericAPIServer.PrepareRun().RunWithContext(server.SetupSignalContext())
}

func who(request *http.Request) (*authenticator.Response, bool, error) {
	return &authenticator.Response{User: &user.DefaultInfo{Name: request.Header.Get("Authorization")}}, true, nil
}

func may(_ context.Context, asks authorizer.Attributes) (authorizer.Decision, string, error) {
	if asks.GetUser().GetName() == "Bearer reader" && !asks.IsReadOnly() {
		return authorizer.DecisionDeny, "readers only read", nil
	}
	return authorizer.DecisionAllow, "", nil
}
