# Signs in with OmniAuth, as GitLab, Mastodon and Discourse do.
require 'json'
require 'logger'
require 'omniauth_openid_connect'
require 'rack'
require 'rack/session/cookie'

ISSUER, PORT = ENV.values_at('ISSUER', 'PORT')
HERE = "http://127.0.0.1:#{PORT}"
SWD.url_builder = URI::HTTP
OmniAuth.config.allowed_request_methods = [:get]
OmniAuth.config.silence_get_warning = true
OmniAuth.config.logger = Logger.new($stderr)

client = nil
token = nil
id_token = nil
steps = {
  '/login' => ->(_) { '/auth/openid_connect' },
  '/auth/openid_connect/callback' => lambda do |env|
    client = env['omniauth.strategy'].client
    credentials = env['omniauth.auth'].credentials
    id_token = credentials.id_token
    token = OpenIDConnect::AccessToken.new(
      client: client, access_token: credentials.token, refresh_token: credentials.refresh_token
    )
    '/'
  end,
  '/' => ->(_) { token.userinfo!.raw_attributes },
  '/refresh' => lambda do |_|
    client.refresh_token = token.refresh_token
    token = client.access_token!
    {}
  end,
  # The library sends no id_token_hint, so a program adds it.
  '/logout' => lambda do |_|
    "#{ISSUER}/oidc/logout?id_token_hint=#{id_token}&post_logout_redirect_uri=#{HERE}/out"
  end,
  '/out' => ->(_) { {} }
}

app = Rack::Builder.new do
  use Rack::Session::Cookie, secret: 'not a secret, but of the length that is asked for, really' * 2
  use OmniAuth::Builder do
    provider :openid_connect,
             issuer: ISSUER,
             discovery: true,
             scope: ENV['SCOPE'].split.map(&:to_sym),
             client_auth_method: :basic,
             client_options: {
               identifier: ENV['CLIENT_ID'],
               secret: ENV['CLIENT_SECRET'],
               redirect_uri: "#{HERE}/auth/openid_connect/callback"
             }
  end
  run(lambda do |env|
    answer = steps.fetch(env['PATH_INFO']).call(env)
    next [302, { 'Location' => answer }, []] if answer.is_a?(String)

    [200, {}, [answer.to_json]]
  rescue StandardError => e
    [401, {}, [e.full_message]]
  end)
end

Rack::Handler::WEBrick.run(app, Host: '127.0.0.1', Port: PORT)
