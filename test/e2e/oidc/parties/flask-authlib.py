"""Signs in with Authlib and Flask, as Mealie does."""
import os

from authlib.integrations.flask_client import OAuth
from flask import Flask, redirect

ISSUER, PORT = os.environ["ISSUER"], os.environ["PORT"]
HERE = f"http://127.0.0.1:{PORT}"
app = Flask(__name__)
app.secret_key = "not a secret"
client = OAuth(app).register(
    "gatehouse",
    client_id=os.environ["CLIENT_ID"],
    client_secret=os.environ["CLIENT_SECRET"],
    server_metadata_url=f"{ISSUER}/.well-known/openid-configuration",
    client_kwargs={"scope": os.environ["SCOPE"], "code_challenge_method": "S256"},
)
token = {}


@app.get("/login")
def login():
    return client.authorize_redirect(f"{HERE}/callback")


@app.get("/callback")
def callback():
    token.update(client.authorize_access_token())
    return redirect("/")


@app.get("/")
def ask():
    return dict(client.userinfo(token=token))


@app.get("/refresh")
def refresh():
    # The answer has another ID token, which Authlib leaves to the program.
    fresh = client.fetch_access_token(
        grant_type="refresh_token", refresh_token=token["refresh_token"]
    )
    token.update(fresh)
    return {}


@app.get("/logout")
def logout():
    end = client.load_server_metadata()["end_session_endpoint"]
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
