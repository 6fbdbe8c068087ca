"""Tokens with the shapes that their issuers publish, as data. Pure.

A row in ``TOKENS``: a shape, its issuer, its source. In a shape ``{a36}`` stands for 36 characters from an alphabet:

    d  digits        h  hexadecimal        l  a-z 0-9        u  A-Z 0-9        a  letters and digits
    w  a and _ -     b  w and + / =        s  b and . ~

Issuers lengthen their tokens, so a length is a lower bound: three quarters are sufficient, and 20 characters at the end
of a shape, where the part takes all that follows. ``{h32!}`` means exactly so many; short prefixes need it.

A row in ``PLACES`` is a text, and a pattern that is searched if the text occurs: addresses that are secrets in
themselves, and tokens that are recognised by their middle.

Sources. The rows are facts (prefix, alphabet, length); no pattern is copied.

    G  gitleaks, config/gitleaks.toml (MIT), github.com/gitleaks/gitleaks
    N  Nosey Parker, default rules (Apache-2.0), github.com/praetorian-inc/noseyparker
    K  Kingfisher, data/rules (Apache-2.0), github.com/mongodb/kingfisher
    H  GitHub, "Supported secret scanning patterns", docs.github.com
    M  the issuer's own documentation
"""

from __future__ import annotations

TOKENS = """
ghp_{w36}                        GitHub personal access token            G
gho_{w36}                        GitHub OAuth token                      G
ghu_{w36}                        GitHub user-to-server token             G
ghs_{w36}                        GitHub server-to-server token           G
ghr_{w36}                        GitHub refresh token                    G
github_pat_{w82}                 GitHub fine-grained token               G
glpat-{s20}                      GitLab personal access token            G
gldt-{w20}                       GitLab deploy token                     G
glft-{w20}                       GitLab feed token                       G
glffct-{w20}                     GitLab feature flag token               G
glimt-{w25}                      GitLab incoming mail token              G
glagent-{w50}                    GitLab agent token                      G
gloas-{w64}                      GitLab OAuth secret                     G
glptt-{h40}                      GitLab trigger token                    G
glrt-{s20}                       GitLab runner token                     G
glrtr-{s20}                      GitLab runner registration token        M
glsoat-{w20}                     GitLab SCIM token                       G
glcbt-{w20}                      GitLab job token                        G
glwt-{w20}                       GitLab workspace token                  M
GR1348941{w20}                   GitLab runner registration token        G
_gitlab_session={l32}            GitLab session                          G
ATBB{a32}                        Bitbucket app password                  N
BBDC-{b44}                       Bitbucket Data Center token             M
ATATT3{s40}                      Atlassian API token                     N
ATCTT3{s40}                      Atlassian access token                  H
ATSTT3{s40}                      Atlassian service token                 H
ATOATT{w40}                      Atlassian OAuth token                   H
ATTA{h64}                        Trello token                            H
sgp_{w40}                        Sourcegraph or Segment token            G
slk_{h64}                        Sourcegraph license key                 K
sgd_{h64}                        Sourcegraph dotcom token                M
xox{l1!}-{w13}                   Slack token                             G
xoxe.xox{w20}                    Slack configuration token               G
xapp-{w20}                       Slack app token                         G
xwfp-{w20}                       Slack workflow token                    M
AKIA{u16}                        AWS access key                          G
ASIA{u16}                        AWS temporary access key                G
ABIA{u16}                        AWS bearer token                        G
ACCA{u16}                        AWS context credential                  G
A3T{u17!}                        AWS access key                          G
ABSK{b109}                       AWS Bedrock key                         G
bedrock-api-key-{b40}            AWS Bedrock short-term key              G
da2-{l26}                        AWS AppSync key                         N
amzn.mws.{w36}                   Amazon MWS token                        N
amzn1.oa2-cs.v1.{h64}            Login with Amazon secret                H
Atzr|{w40}                       Login with Amazon refresh token         M
Atza|{w40}                       Login with Amazon access token          M
AIza{w35}                        Google API key                          G
GOCSPX-{w28}                     Google OAuth secret                     N
ya29.{w20}                       Google OAuth token                      N
GOOG1E{a57}                      Google Cloud Storage HMAC key           H
LTAI{a20}                        Alibaba Cloud access key                G
AKID{a32}                        Tencent Cloud secret id                 H
AKLT{a32}                        Volcengine access key                   H
bce-v3/ALTAK-{b40}               Baidu AI Cloud key                      M
SCW{u17!}                        Scaleway access key                     M
AQVN{w36}                        Yandex Cloud API key                    H
YCAJE{w15}                       Yandex Cloud access key                 H
YCO{w37!}                        Yandex Cloud secret key                 H
t1.9eu{s40}                      Yandex IAM token                        H
y0_{w50}                         Yandex OAuth token                      H
dop_v1_{h64}                     DigitalOcean token                      G
doo_v1_{h64}                     DigitalOcean OAuth token                G
dor_v1_{h64}                     DigitalOcean refresh token              G
HRKU-{w36}                       Heroku key                              G
rnd_{a32}                        Render key                              M
fo1_{w43}                        Fly.io token                            G
fm1a_{b100}                      Fly.io token                            G
fm1r_{b100}                      Fly.io token                            G
fm2_{b100}                       Fly.io token                            G
vcp_{a24}                        Vercel personal token                   H
vci_{a24}                        Vercel integration token                H
vca_{a24}                        Vercel app token                        H
vcr_{a24}                        Vercel refresh token                    H
vck_{a24}                        Vercel AI gateway key                   H
vercel_blob_rw_{w40}             Vercel blob token                       M
nfp_{a36}                        Netlify personal token                  H
nfc_{a36}                        Netlify CLI token                       H
nfo_{a36}                        Netlify OAuth token                     H
nfu_{a36}                        Netlify UI token                        H
nfb_{a36}                        Netlify build token                     H
v1.0-{h24}-{h146}                Cloudflare origin key                   G
sbp_{a40}                        Supabase token                          K
sb_secret_{w31}                  Supabase secret key                     M
napi_{l64}                       Neon key                                M
neon_pool_{w20}                  Neon token                              M
pscale_tkn_{s32}                 PlanetScale token                       G
pscale_pw_{s32}                  PlanetScale password                    G
pscale_oauth_{s32}               PlanetScale OAuth token                 G
pscale_app_{s32}                 PlanetScale app secret                  M
mdb_sa_sk_{w40}                  MongoDB Atlas service account           K
CCDB1_{w40}                      CockroachDB Cloud key                   H
AVNS_{w18}                       Aiven password                          H
4b1d{a38!}                       ClickHouse Cloud key                    G
xau_{a36}                        Xata key                                M
dckr_pat_{w27}                   Docker token                            N
dckr_oat_{w32}                   Docker organization token               M
npm_{a36}                        npm token                               G
pypi-{w50}                       PyPI token                              G
rubygems_{a48}                   RubyGems key                            G
cio{a32!}                        crates.io token                         N
CLOJARS_{a60}                    Clojars token                           G
oy2{l43!}                        NuGet key                               N
packagist_{w40}                  Packagist token                         M
ddp_{a36}                        Deno Deploy token                       M
ddo_{a36}                        Deno Deploy organization token          M
jsrp_{a40}                       JSR token                               M
AKCp{a69}                        Artifactory key                         G
AKC{a64!}                        Artifactory token                       K
cmVmd{a59}                       Artifactory reference token             G
API-{u26}                        Octopus Deploy key                      G
odt_{a32}                        Dependency-Track key                    N
sqp_{a40}                        SonarQube project token                 K
squ_{a40}                        SonarQube user token                    K
sqa_{a40}                        SonarQube analysis token                K
sqb_{a40}                        SonarQube badge token                   M
snyk_uat.{s40}                   Snyk user token                         M
snyk_sat.{s40}                   Snyk service token                      M
hawk.{w20}.{w20}                 StackHawk key                           K
bkua_{a40}                       Buildkite token                         K
bkct_{s40}                       Buildkite cluster token                 M
bkaj_{s40}                       Buildkite job token                     M
bkpt_{s40}                       Buildkite package token                 M
CCIPAT_{w40}                     CircleCI token                          K
CCIPRJ_{w40}                     CircleCI project token                  M
pul-{l40}                        Pulumi token                            G
hvs.{w24}                        Vault service token                     G
hvb.{w24}                        Vault batch token                       G
hvr.{w24}                        Vault recovery token                    N
s.{a24!}                         Vault token before 1.10                 G
b.{w90}                          Vault batch token before 1.10           N
dp.pt.{a40}                      Doppler personal token                  N
dp.ct.{a40}                      Doppler CLI token                       N
dp.st.{s40}                      Doppler service token                   N
dp.sa.{a40}                      Doppler service account token           N
dp.scim.{a40}                    Doppler SCIM token                      N
dp.audit.{a40}                   Doppler audit token                     N
st.{h24}.{s40}                   Infisical service token                 M
ops_{b200}                       1Password service account               G
A3-{u6}-{s25}                    1Password secret key                    G
AGE-SECRET-KEY-1{u58}            age key                                 G
AGE-PLUGIN-{u10}-1{u40}          age plug-in identity                    M
nsec1{l58}                       Nostr key                               M
xprv{a107}                       BIP 32 key                              M
zprv{a107}                       BIP 84 key                              M
sk-{w20}                         OpenAI key, and those made like it      G
sk-ant-{w40}                     Anthropic key                           G
sk_{a20}                         secret key (Clerk, Svix, Knock)         M
sk_live_{a10}                    Stripe key, and those made like it      G
sk_test_{a10}                    Stripe test key                         G
sk_prod_{a10}                    Stripe key                              G
sk_org_{a10}                     Stripe organization key                 M
sk_sbox_{s20}                    Checkout.com key                        M
rk_live_{a10}                    Stripe restricted key                   G
rk_test_{a10}                    Stripe restricted test key              G
rk_prod_{a10}                    Stripe restricted key                   G
whsec_{b24}                      Stripe or Svix webhook secret           M
ak_live_{a30}                    Pagar.me key                            K
ak_test_{a30}                    Pagar.me test key                       K
gsk_{a52}                        Groq key                                N
xai-{w80}                        xAI key                                 K
pplx-{a48}                       Perplexity key                          G
r8_{w37}                         Replicate token                         K
hf_{a34}                         Hugging Face token                      G
api_org_{a34}                    Hugging Face organization token         G
tgp_v1_{w43}                     Together key                            M
fw_{a24!}                        Fireworks key                           M
csk-{a48}                        Cerebras key                            M
nvapi-{w64}                      NVIDIA key                              K
pcsk_{w60}                       Pinecone key                            H
lsv2_pt_{w42}                    LangSmith personal token                H
lsv2_sk_{w42}                    LangSmith service key                   H
tvly-{w32}                       Tavily key                              K
fc-{h32}                         Firecrawl key                           N
jina_{a60}                       Jina key                                N
pa-{w43!}                        Voyage AI key                           M
llx-{a48}                        LlamaCloud key                          M
e2b_{h40}                        E2B key                                 M
bb_live_{w24}                    Browserbase key                         M
rpa_{a40}                        RunPod key                              M
KGAT_{h32}                       Kaggle token                            M
apify_api_{a36}                  Apify token                             M
wandb_v1_{w40}                   Weights & Biases key                    M
crsr_{h64}                       Cursor key                              M
AQ.Ab{w40}                       Google AI Studio key                    M
BSA{w28!}                        Brave Search key                        M
dapi{h32}                        Databricks token                        G
dkea{h32}                        Databricks token                        H
dose{h32}                        Databricks OAuth secret                 H
dbtc_{w40}                       dbt Cloud token                         H
dbtu_{w40}                       dbt Cloud personal token                H
dbts_{w40}                       dbt Cloud service token                 M
pnu_{a36}                        Prefect key                             G
pnb_{a36}                        Prefect bot key                         M
pat{a14}.{a62}                   Airtable token                          G
pat.{w22}.{a24}.{a20}            Harness personal token                  G
sat.{w22}.{a24}.{a20}            Harness service token                   G
pat-na1-{w36}                    HubSpot token                           K
pat-na2-{w36}                    HubSpot token                           K
pat-eu1-{w36}                    HubSpot token                           K
pat-ap1-{w36}                    HubSpot token                           M
ntn_{a46}                        Notion token                            G
secret_{a43}                     Notion integration token                K
lin_api_{a40}                    Linear key                              G
lin_oauth_{a40}                  Linear OAuth token                      H
lin_wh_{a40}                     Linear webhook secret                   M
figd_{w40}                       Figma token                             K
figo_{w40}                       Figma OAuth token                       M
figu_{w40}                       Figma user token                        M
sntrys_{b40}                     Sentry organization token               G
sntryu_{h64}                     Sentry user token                       G
sntryi_{h64}                     Sentry integration token                M
NRAK-{u27}                       New Relic key                           N
NRAA-{h27}                       New Relic admin key                     N
NRII-{w32}                       New Relic insert key                    N
NRIQ-{w32}                       New Relic query key                     N
NRRA-{h42}                       New Relic REST key                      N
NRJS-{h19}                       New Relic browser key                   G
NRSP-{w30}                       New Relic Synthetics key                M
px-api-{w36}                     New Relic Pixie key                     N
px-dep-{w36}                     New Relic Pixie deploy key              N
glsa_{a32}_{h8}                  Grafana service token                   G
glc_{b32}                        Grafana Cloud token                     G
eyJrIjoi{a70}                    Grafana key                             G
dt0{l3!}.{a24}.{a64}             Dynatrace token                         N
hcaik_{l58}                      Honeycomb ingest key                    H
hcxik_{l58}                      Honeycomb ingest key                    H
hcamk_{l40}                      Honeycomb management key                M
essu_{b40}                       Elastic Cloud key                       M
hlio_{w20}                       Highlight key                           M
ico-{a32}                        Infracost key                           G
PMAK-{a24}-{a34}                 Postman key                             G
PMAT-{a26}                       Postman collection token                M
rdme_{a70}                       ReadMe key                              G
SG.{s66}                         SendGrid key                            G
key-{a32!}                       Mailgun key                             K
pubkey-{h32}                     Mailgun public key                      G
md-{w22!}                        Mandrill key                            M
xkeysib-{h64}-{a16}              Brevo key                               G
xsmtpsib-{h64}-{a16}             Brevo SMTP key                          M
re_{w32!}                        Resend key                              M
SK{h32!}                         Twilio key                              G
AC{h32!}                         Twilio account                          K
shpat_{h32}                      Shopify access token                    G
shpca_{h32}                      Shopify custom app token                G
shppa_{h32}                      Shopify private app token               G
shpss_{h32}                      Shopify shared secret                   G
shptka_{h32}                     Shopify theme token                     M
shpua_{h32}                      Shopify user token                      M
sq0atp-{w22}                     Square access token                     G
sq0csp-{w43}                     Square OAuth secret                     N
sq0idp-{w22}                     Square application id                   K
EAAA{w60}                        Square access token                     G
EAA{a100}                        Facebook access token                   G
IGQV{w100}                       Instagram token                         H
IGAA{w100}                       Instagram token                         M
vk1.a.{w80}                      VK token                                H
pina_{w32}                       Pinterest token                         H
WPL_AP1.{s40}                    LinkedIn token                          M
rzp_live_{a14}                   Razorpay key                            H
rzp_test_{a14}                   Razorpay test key                       H
access-sandbox-{w36}             Plaid token                             G
access-production-{w36}          Plaid token                             G
access-development-{w36}         Plaid token                             G
FLWSECK-{a32}                    Flutterwave key                         H
FLWSECK_TEST-{a12}               Flutterwave test key                    G
FLWPUBK_TEST-{a32}               Flutterwave public key                  G
FLWPUBK-{a32}                    Flutterwave public key                  H
EZAK{a54}                        EasyPost key                            G
EZTK{a54}                        EasyPost test key                       G
shippo_live_{h40}                Shippo token                            G
shippo_test_{h40}                Shippo test token                       G
duffel_live_{b43}                Duffel token                            G
duffel_test_{b43}                Duffel test token                       G
pdl_live_apikey_{w40}            Paddle key                              H
pdl_sdbx_apikey_{w40}            Paddle sandbox key                      H
pdl_ntfset_{w40}                 Paddle webhook secret                   M
live_{d8}_{a30}                  Twitch stream key                       N
live_{a28}                       live key (Mollie, Lob, Column)          K
test_{a34!}                      test key (Mollie, Lob)                  K
ck_{h40!}                        WooCommerce key                         M
cs_{h40!}                        WooCommerce secret                      M
PRD-{h12}-{w18}                  eBay key                                M
SBX-{h12}-{w18}                  eBay sandbox key                        M
CFPAT-{w43}                      Contentful token                        K
tfp_{w40}                        Typeform token                          G
PMT{a40}                         Postmark token                          M
fio-u-{b64}                      Frame.io token                          G
p8e-{w32}                        Adobe client secret                     G
ion_{a42}                        Ionic token                             K
aio_{a28}                        Adafruit IO key                         N
BBFF-{a30}                       Ubidots token                           K
flb_live_{a20}                   Fleetbase key                           K
shltm_{w40}                      Flexport key                            K
sm_aat_{a16}                     SettleMint application token            G
sm_pat_{a16}                     SettleMint personal token               G
sm_sat_{a16}                     SettleMint service token                G
s-s4t2ud-{h64}                   42 client secret                        G
s-s4t2af-{h64}                   42 client secret                        G
tk-us-{w48}                      Scalingo token                          G
tskey-{w20}                      Tailscale key                           N
tskey-auth-{w20}                 Tailscale auth key                      N
NF-{a32!}                        Nightfall key                           K
VF.{h24}.{a16}                   Voiceflow key                           K
VF.DM.{h24}.{a16}                Voiceflow key                           K
web_{a32!}                       dfuse key                               K
tkn.v1_{b71}                     Teamwork token                          K
na1.{b100}                       FullStory key                           K
1000.{h32}.{h32}                 Zoho token                              K
pk_{d7}_{u32}                    ClickUp token                           K
pk_{a34!}                        Klaviyo or Courier key                  K
sub-c-{w36}                      PubNub subscribe key                    K
pub-c-{w36}                      PubNub publish key                      K
sec-c-{b40}                      PubNub secret key                       M
phx_{w43}                        PostHog personal key                    K
phs_{w43}                        PostHog secret key                      M
sdk-{h8!}-{h4!}-4{h3!}-{w17!}    LaunchDarkly SDK key                    K
api-{h8!}-{h4!}-4{h3!}-{w17!}    LaunchDarkly access token               K
mob-{h8!}-{h4!}-4{h3!}-{w17!}    LaunchDarkly mobile key                 K
secret-{a40}                     Statsig secret key                      M
secret-live-{b30}                Stytch secret                           M
secret-test-{b30}                Stytch test secret                      M
os_v2_app_{l80}                  OneSignal key                           H
zpka_{a32}                       Zuplo key                               H
unkey_{a20}                      Unkey root key                          H
onfido_live_{w20}                Onfido token                            M
api_live.{s40}                   Onfido token                            H
api_sandbox.{s40}                Onfido sandbox token                    H
persona_production_{w36}         Persona key                             H
persona_sandbox_{w36}            Persona sandbox key                     H
gb_api_{a40}                     GitBook token                           M
n8n_api_{h40}                    n8n key                                 M
app-{a24!}                       Dify app key                            M
ubi-{a20}                        Ubiq secret                             M
cnvca{a40}                       Canva secret                            H
retool_{w20}                     Retool token                            M
EAACEdEose0cBA{a20}              Facebook token                          N
ext_{a5}.{a4}.{s40}              Authress key                            G
sc_{a5}.{a4}.{s40}               Authress key                            G
scauth_{a5}.{a4}.{s40}           Authress key                            G
authress_{a5}.{a4}.{s40}         Authress key                            G
sl.{w130}                        Dropbox token                           N
sk.eyJ{w60}.{w20}                Mapbox secret token                     K
tk.eyJ{w60}.{w20}                Mapbox temporary token                  K
IXTO{w40}                        Ixopay token                            M
sha256~{w43}                     OpenShift token                         G
eyJ{w17}.{s20}                   JSON web token                          G
ey{w34}.ey{s40}                  JSON web token                          N
ZXlK{b60}                        JSON web token in base64                G
LS0tLS1CRUdJTi{b50}              private key in base64                   N
00D{a12}!{s80}                   Salesforce session                      N
django-insecure-{s40}            Django key                              M
r8e_{w37}                        Replicate token                         M
waka_{w36}                       WakaTime key                            H
wk-{a40}                         Warp key                                M
vtwn_{a40}                       Val Town token                          M
tr_dev_{a20}                     Trigger.dev key                         M
tr_prod_{a20}                    Trigger.dev key                         M
signkey-prod-{h64}               Inngest signing key                     M
signkey-test-{h64}               Inngest signing key                     M
sk-or-v1-{h64}                   OpenRouter key                          H
sk-lf-{w36}                      Langfuse key                            M
sk-helicone-{w20}                Helicone key                            M
xkey-{w40}                       NATS key                                M
SUA{u55}                         NATS user seed                          M
SAA{u55}                         NATS account seed                       M
SOA{u55}                         NATS operator seed                      M
tok_{a28}                        API token (Terra, Tilebox)              M
ctp_{a40}                        commercetools token                     M
pd_live_{a40}                    Paddle key                              M
pdus+{w20}                       PagerDuty key                           H
u+{w18!}                         PagerDuty key                           K
ctx7sk-{w36}                     Context7 key                            M
lsk_{a32}                        Lakera key                              M
lmnt_{a32}                       LMNT key                                M
wh_{a40!}                        webhook secret                          M
fk_live_{a28}                    Fintoc key                              M
kagi_{w40}                       Kagi token                              K
"""

PLACES: tuple[tuple[str, str], ...] = (
    ("hooks.slack.com/", r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<secret>[\w/+-]+)"),
    ("/webhooks/", r"discord(?:app)?\.com/api/(?:v\d{1,3}/)?webhooks/\d{5,25}/(?P<secret>[\w-]{20,})"),
    ("telegram.org/", r"telegram\.org/(?:file/)?bot(?P<secret>\d{5,15}(?::|%3[Aa])[\w-]{20,})"),
    (":AA", r"(?<![A-Za-z0-9])(?P<secret>\d{8,12}:AA[\w-]{30,})"),
    ("office.com/webhook", r"office\.com/webhook(?:b2)?/(?P<secret>[\w@/-]{36,})"),
    (".logic.azure.com", r"\.logic\.azure\.com(?::\d{1,5})?/workflows/(?P<secret>[a-f0-9]{32})"),
    ("hooks.zapier.com/", r"hooks\.zapier\.com/hooks/(?:catch|standard)/(?P<secret>[\w/]{8,})"),
    ("maker.ifttt.com/", r"maker\.ifttt\.com/(?:[\w-]{1,60}/){1,4}key/(?P<secret>[\w-]{10,})"),
    (".make.com/", r"hook\.\w{2,5}\d?\.make\.com/(?P<secret>[a-z0-9]{20,})"),
    ("/bot/v2/hook/", r"/open-apis/bot/(?:v2/)?hook/(?P<secret>[\w-]{20,})"),
    ("weixin.qq.com/", r"weixin\.qq\.com/cgi-bin/webhook/\w{1,20}\?key=(?P<secret>[\w-]{20,})"),
    ("hc-ping.com/", r"hc-ping\.com/(?P<secret>[\w-]{20,})"),
    ("webhook.site/", r"webhook\.site/(?P<secret>[a-f0-9-]{36})"),
    ("/hooks/", r"https?://[^\s/'\"]{1,200}/hooks/(?P<secret>[A-Za-z0-9/]{20,})"),
    ("tines.com/webhook/", r"tines\.com/webhook/(?P<secret>[\w/]{32,})"),
    ("build_hooks/", r"netlify\.com/build_hooks/(?P<secret>[a-f0-9]{20,})"),
    ("integrations/deploy/", r"vercel\.com/v1/integrations/deploy/(?P<secret>[\w/]{20,})"),
    ("/heartbeat/", r"betterstack\.com/api/v1/heartbeat/(?P<secret>\w{20,})"),
    ("cronitor.link/", r"cronitor\.link/p/(?P<secret>\w{16,})"),
    ("infura.io/", r"infura\.io/(?:ws/)?v3/(?P<secret>[a-f0-9]{32})"),
    ("alchemy.com/", r"alchemy\.com/v2/(?P<secret>[\w-]{20,})"),
    ("quiknode.pro/", r"quiknode\.pro/(?P<secret>[a-f0-9]{32,})"),
    ("/services/collector", r"/services/collector/raw/(?P<secret>[a-f0-9-]{36})"),
    ("1//0", r"(?<![A-Za-z0-9/:])(?P<secret>1//0[\w-]{30,})"),
    ("T3BlbkFJ", r"(?P<secret>[\w-]{16,200}T3BlbkFJ[\w-]{16,200})"),
    (".atlasv1.", r"(?<![A-Za-z0-9])(?P<secret>[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{40,})"),
    ("_mmk", r"(?<![A-Za-z0-9])(?P<secret>[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk)"),
    ("NRAL", r"(?<![A-Za-z0-9])(?P<secret>[A-Za-z0-9]{36}NRAL)"),
    ("Q~", r"(?<![\w.~-])(?P<secret>[\w.~]{3}\dQ~[\w.~-]{31,34})"),
    ("AZDO", r"(?<![A-Za-z0-9])(?P<secret>[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4})"),
    ("JQQJ99", r"(?<![A-Za-z0-9])(?P<secret>[A-Za-z0-9]{52}JQQJ99[A-Za-z0-9]{26,})"),
    ("+ASt", r"(?<![A-Za-z0-9])(?P<secret>[A-Za-z0-9+/]{70,80}\+ASt[A-Za-z0-9+/=]{8,12})"),
    ("+ACR", r"(?<![A-Za-z0-9])(?P<secret>[A-Za-z0-9+/]{40,46}\+ACR[A-Za-z0-9+/=]{4,12})"),
    ("AzSe", r"(?<![A-Za-z0-9])(?P<secret>[A-Za-z0-9]{42}AzSe[A-Za-z0-9]{6})"),
    ("AzFu", r"(?<![A-Za-z0-9])(?P<secret>[\w-]{44}AzFu[\w=-]{8})"),
    ("access_token$", r"(?P<secret>access_token\$(?:production|sandbox)\$[a-z0-9]{16}\$[a-f0-9]{32})"),
    *((f"-us{digit}", rf"(?<![A-Za-z0-9])(?P<secret>[a-f0-9]{{32}})-us{digit}\d?(?![\w-])") for digit in range(1, 10)),
    ("PuTTY-User-Key-File", r"Private-Lines: \d{1,3}\s{1,4}(?P<secret>(?:[A-Za-z0-9+/=]{20,}\s{0,4})+)"),
)
"""A text that must occur, and the pattern whose group ``secret`` is hidden."""
