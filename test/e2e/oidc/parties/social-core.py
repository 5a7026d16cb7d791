"""Signs in with python-social-auth, without PKCE."""
import os

from flask import Flask, redirect, request, session
from social_core.backends.open_id_connect import OpenIdConnectAuth
from social_core.storage import BaseStorage
from social_core.strategy import BaseStrategy

ISSUER, PORT = os.environ["ISSUER"], os.environ["PORT"]
HERE = f"http://127.0.0.1:{PORT}"
SETTINGS = {
    "OIDC_ENDPOINT": ISSUER,
    "KEY": os.environ["CLIENT_ID"],
    "SECRET": os.environ["CLIENT_SECRET"],
    "SCOPE": os.environ["SCOPE"].split(),
    "IGNORE_DEFAULT_SCOPE": True,
}
app = Flask(__name__)
app.secret_key = "not a secret"
token = {}
nonces = []


class Association:
    """Nonces that were sent and did not come back yet."""

    @staticmethod
    def store(_url, association):
        association.id = len(nonces)
        nonces.append(association)

    @staticmethod
    def get(handle, **_more):
        return [nonce for nonce in nonces if nonce.handle == handle]

    @staticmethod
    def remove(_ids):
        pass


class Storage(BaseStorage):
    association = Association


class Strategy(BaseStrategy):
    def get_setting(self, name):
        return SETTINGS[name]

    def request_data(self, merge=True):
        return request.args

    def session_get(self, name, default=None):
        return session.get(name, default)

    def session_set(self, name, value):
        session[name] = value

    def build_absolute_uri(self, path=None):
        return HERE + path

    def redirect(self, url):
        return redirect(url)


class Backend(OpenIdConnectAuth):
    def setting(self, name, default=None):
        return SETTINGS.get(name, default)


def backend():
    return Backend(Strategy(Storage), redirect_uri="/callback")


@app.get("/login")
def login():
    return backend().start()


@app.get("/callback")
def callback():
    flow = backend()
    flow.data = request.args
    flow.validate_state()
    token.update(
        flow.request_access_token(
            flow.access_token_url(),
            data=flow.auth_complete_params(),
            headers=flow.auth_headers(),
            auth=flow.auth_complete_credentials(),
            method=flow.ACCESS_TOKEN_METHOD,
        )
    )
    return redirect("/")


@app.get("/")
def ask():
    return backend().user_data(token["access_token"])


@app.get("/refresh")
def refresh():
    token.update(backend().refresh_token(token["refresh_token"]))
    return {}


@app.get("/logout")
def logout():
    end = backend().oidc_config()["end_session_endpoint"]
    return redirect(
        f"{end}?id_token_hint={token['id_token']}&post_logout_redirect_uri={HERE}/out"
    )


@app.get("/out")
def out():
    return {}


@app.errorhandler(Exception)
def refused(error):
    return repr(error), 401


app.run("127.0.0.1", int(PORT))
