// Signs in with go-oidc and x/oauth2, as Grafana, Miniflux and others do.
package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/coreos/go-oidc"
	"golang.org/x/oauth2"
)

func main() {
	ctx := context.Background()
	here := "http://127.0.0.1:" + os.Getenv("PORT")
	provider, err := oidc.NewProvider(ctx, os.Getenv("ISSUER"))
	if err != nil {
		panic(err)
	}
	config := oauth2.Config{
		ClientID:     os.Getenv("CLIENT_ID"),
		ClientSecret: os.Getenv("CLIENT_SECRET"),
		Endpoint:     provider.Endpoint(),
		RedirectURL:  here + "/callback",
		Scopes:       strings.Split(os.Getenv("SCOPE"), " "),
	}
	verifier := provider.Verifier(&oidc.Config{ClientID: config.ClientID})
	var token *oauth2.Token
	var idToken string

	// handle answers with the claims that a step returns, or with 401.
	handle := func(path string, step func(r *http.Request) (interface{}, error)) {
		http.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			answer, err := step(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusUnauthorized)
			} else if location, isText := answer.(string); isText {
				http.Redirect(w, r, location, http.StatusFound)
			} else {
				json.NewEncoder(w).Encode(answer)
			}
		})
	}
	handle("/login", func(r *http.Request) (interface{}, error) {
		return config.AuthCodeURL("state", oidc.Nonce("nonce")), nil
	})
	handle("/callback", func(r *http.Request) (interface{}, error) {
		if token, err = config.Exchange(ctx, r.URL.Query().Get("code")); err != nil {
			return nil, err
		}
		idToken, _ = token.Extra("id_token").(string)
		_, err := verifier.Verify(ctx, idToken)
		return "/", err
	})
	handle("/", func(r *http.Request) (interface{}, error) {
		info, err := provider.UserInfo(ctx, oauth2.StaticTokenSource(token))
		if err != nil {
			return nil, err
		}
		claims := map[string]interface{}{}
		return claims, info.Claims(&claims)
	})
	handle("/refresh", func(r *http.Request) (interface{}, error) {
		token.Expiry = time.Now().Add(-time.Minute)
		fresh, err := config.TokenSource(ctx, token).Token()
		if err != nil {
			return nil, err
		}
		token = fresh
		return map[string]string{}, nil
	})
	handle("/logout", func(r *http.Request) (interface{}, error) {
		return os.Getenv("ISSUER") + "/oidc/logout?id_token_hint=" + idToken +
			"&post_logout_redirect_uri=" + here + "/out", nil
	})
	handle("/out", func(r *http.Request) (interface{}, error) {
		return map[string]string{}, nil
	})
	panic(http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), nil))
}
